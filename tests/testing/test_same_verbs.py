"""Both kinds of clusters have the same verbs with the same arguments, and faults have all fields of the control API."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from os import PathLike
from typing import Any

import pytest

import klamm
import klamm.testing
from klamm.control.bodies import EffectBody, FaultBody, FilterBody
from klamm.control.verbs.model import Control
from klamm.control.verbs.routes import ROUTES
from klamm.testing.arguments import FaultArguments, RequestFilter
from klamm.testing.async_cluster import AsyncCluster
from klamm.testing.blocking_cluster import BlockingCluster, BlockingFault, BlockingHold
from klamm.testing.fault import Fault
from klamm.testing.hold import Hold
from klamm.testing.per_test import ARGUMENTS

OTHER_NAMES: dict[str, str] = {
    "hold_state": "Hold.wait", "release": "Hold.release", "step": "Hold.step", "fail": "Hold.fail", "crash": "Hold.crash",
    "delete_holds": "restore", "delete_hold": "Hold.release",
    "add_fault": "fault", "fault": "Fault.wait", "delete_faults": "restore", "delete_fault": "Fault.remove", "add_link": "cut_link",
    "broker": "brokers", "controller": "controller_id", "clock_state": "clock", "advance_clock": "advance",
    "configs_processed": "wait_for_configs", "reset": "restore",
}
"""Verbs of `Control` whose name in `klamm.testing` is another one, a method of a cluster unless it says `Hold` or `Fault`."""


@pytest.mark.parametrize(("first", "second"), [(AsyncCluster, BlockingCluster), (Fault, BlockingFault), (Hold, BlockingHold)])
def test_a_blocking_class_has_the_names_and_arguments_of_the_other(first: type[Any], second: type[Any]) -> None:
    verbs = {name: value for kind in first.__mro__[:-1] for name, value in vars(kind).items() if not name.startswith("_")}
    assert sorted(verbs.keys() - vars(second).keys()) == []
    for name, value in verbs.items():
        if inspect.isfunction(value):
            expected, found = (inspect.signature(each).parameters for each in (value, vars(second)[name]))
            assert [*expected] == [*found], name
            assert [each.default for each in expected.values()] == [each.default for each in found.values()], name
            assert not inspect.iscoroutinefunction(vars(second)[name]), name


def test_each_route_of_the_control_api_is_a_verb_of_the_clusters_for_tests() -> None:
    classes = {"Hold": (Hold, BlockingHold), "Fault": (Fault, BlockingFault), "Cluster": (AsyncCluster, BlockingCluster)}
    for route in ROUTES:
        verb = OTHER_NAMES.get(route.act.__name__, route.act.__name__)
        kind, name = verb.split(".") if "." in verb else ("Cluster", verb)
        assert all(hasattr(each, name) for each in classes[kind]), route


OTHER_ARGUMENTS = {"configs": "config", "ms": "delay_ms", "name": "group", "id": "cluster_id"}
"""Names in bodies and paths whose name in `klamm.testing` is another one for some verbs."""
BY_OTHER_METHODS = {"hold": {"crash", "fail", "delay_ms"}, "add_link": {"cut", "delay_ms"}, "advance_clock": {"ms", "step_ms"}}
"""Fields that are another method there, or a time in seconds."""


def test_each_field_of_a_verb_is_an_argument_of_its_method() -> None:
    for route in ROUTES:
        verb = OTHER_NAMES.get(route.act.__name__, route.act.__name__)
        if "." in verb or verb in ("fault", "restore") or route.method == "GET":
            continue
        method = getattr(AsyncCluster, verb)
        arguments = {} if isinstance(method, property) else inspect.signature(method).parameters
        fields = {*route.names, *(() if route.body is None else route.body.__struct_fields__)}
        fields -= BY_OTHER_METHODS.get(route.act.__name__, set())
        missing = {name for name in fields if not {name, OTHER_ARGUMENTS.get(name), "transactional_id"} & set(arguments)}
        assert not missing, (route.act.__name__, missing)


def test_a_cluster_for_programs_is_the_cluster_for_tests_and_the_marker_takes_its_arguments() -> None:
    assert klamm.Cluster is klamm.testing.Cluster
    assert {*ARGUMENTS} == {*inspect.signature(klamm.Cluster).parameters} - {"zookeeper"} | {"version", "own"}
    assert ARGUMENTS["topics"] == (str, Iterable) and ARGUMENTS["data_dir"] == (str, PathLike) and ARGUMENTS["tls"] == (bool,)


def test_each_verb_of_the_control_has_a_route() -> None:
    """Others are for waits of `klamm.testing`, and for the cluster itself."""
    verbs = {name for name, _ in inspect.getmembers(Control, inspect.iscoroutinefunction) if not name.startswith("_")}
    assert verbs - {route.act.__name__ for route in ROUTES} == {"controllers", "let_go", "remember", "replicas"}


def test_a_fault_has_all_fields_of_the_control_api() -> None:
    fields = {*FilterBody.__struct_fields__, *EffectBody.__struct_fields__, *FaultBody.__struct_fields__} - {"filter", "effect"}
    assert set(FaultArguments.__annotations__) == fields


def test_requests_are_filtered_as_by_the_history() -> None:
    from klamm.control.history import History

    assert set(RequestFilter.__annotations__) == set(inspect.signature(History.newest).parameters) - {"self", "clients_only", "since_ms"}, (
        "`since_ms` is what the owner of processes asks them"
    )
