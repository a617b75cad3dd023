"""Both kinds of clusters have the same verbs with the same arguments, and faults have all fields of the control API."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from klamm.control.bodies import EffectBody, FaultBody, FilterBody
from klamm.testing.arguments import FaultArguments, RequestFilter
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.blocking_cluster import BlockingCluster, BlockingFault, BlockingHold
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold

FOR_WAITS = {"here", "wait_text"}


@pytest.mark.parametrize(("first", "second"), [(AsyncCluster, BlockingCluster), (Fault, BlockingFault), (Hold, BlockingHold)])
def test_a_blocking_class_has_the_names_and_arguments_of_the_other(first: type[Any], second: type[Any]) -> None:
    verbs = {name: value for name, value in vars(first).items() if not name.startswith("_") and name not in FOR_WAITS}
    assert sorted(verbs.keys() - vars(second).keys()) == []
    for name, value in verbs.items():
        if inspect.isfunction(value):
            expected, found = (inspect.signature(each).parameters for each in (value, vars(second)[name]))
            assert [*expected] == [*found], name
            assert [each.default for each in expected.values()] == [each.default for each in found.values()], name
            assert not inspect.iscoroutinefunction(vars(second)[name]), name


def test_a_fault_has_all_fields_of_the_control_api() -> None:
    fields = {*FilterBody.__struct_fields__, *EffectBody.__struct_fields__, *FaultBody.__struct_fields__} - {"filter", "effect"}
    assert set(FaultArguments.__annotations__) == fields


def test_requests_are_filtered_as_by_the_history() -> None:
    from klamm.control.history import History

    assert set(RequestFilter.__annotations__) == set(inspect.signature(History.newest).parameters) - {"self", "clients_only", "since_ms"}, (
        "`since_ms` is what the owner of processes asks them"
    )
