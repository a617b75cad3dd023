"""The tables of releases agree with the APIs of 3.9, and with the rules about what servers advertise."""

from __future__ import annotations

from itertools import pairwise

import pytest

from klamm.pipeline.decode.cluster_flaws import versions
from klamm.protocol.apis import APIS, ApiKey
from klamm.protocol.releases import RELEASES, newest, ranges


def test_the_release_that_klamm_speaks_has_its_versions() -> None:
    of_kafka = [api for api in APIS.values() if api.draft is None and api.key in ranges("3.9")]
    assert len(of_kafka) > 60
    wrong = {api.name: ranges("3.9")[api.key] for api in of_kafka if ranges("3.9")[api.key][1] != api.max_version}
    assert wrong == {}


def test_versions_never_fall_from_one_release_to_the_next() -> None:
    for before, after in pairwise(RELEASES):
        assert all(ranges(after)[key][1] >= high for key, (_, high) in ranges(before).items() if key in ranges(after)), after
    assert newest()[ApiKey.FETCH] == 18
    assert newest()[ApiKey.LEADER_AND_ISR] == 7, "4.0 has it no more"


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_advertises_breaks_no_rule(release: str) -> None:
    rows = [{"apiKey": key, "minVersion": low, "maxVersion": high} for key, (low, high) in ranges(release).items()]
    assert list(versions(3, {"errorCode": 0, "apiKeys": rows})) == []
