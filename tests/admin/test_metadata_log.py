"""`read_metadata_log`: what a reader that is no broker gets of the controller's metadata log (controller 25.1)."""

from __future__ import annotations

import kafka.errors
import pytest

from klamm.admin import AdminClient, BadResponse, MetadataLogPart, Unsupported
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.protocol.errors import ErrorCode
from klamm.tests.admin.scripted import ScriptedCluster

FETCH = ApiKey.METADATA_FETCH


def response(error: ErrorCode = ErrorCode.NONE, records: bytes | None = b"", epoch: int = 7) -> messages.MetadataFetchResponse:
    return messages.MetadataFetchResponse(error_code=error, controller_epoch=epoch, log_start_offset=3, high_watermark=9, records=records)


@pytest.fixture
def serving(cluster: ScriptedCluster) -> ScriptedCluster:
    for broker in cluster.add(1, 2):
        broker.versions = {**broker.versions, int(FETCH): (0, 0)}
    return cluster


def test_records_come_from_the_controller_and_broker_id_and_epoch_are_those_of_no_broker(serving: ScriptedCluster) -> None:
    serving.brokers[1].on(FETCH, response(records=b"batches"))
    with AdminClient(serving.bootstrap) as admin:
        assert admin.read_metadata_log(7, 4, max_wait_ms=5, max_bytes=10) == MetadataLogPart(7, 3, 9, b"batches")
    (body,) = serving.brokers[1].bodies(FETCH)
    assert body == messages.MetadataFetchRequest(
        broker_id=-1, broker_epoch=-1, controller_epoch=7, fetch_offset=4, max_wait_ms=5, max_bytes=10, want_shut_down=False
    )


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_another_epoch_and_an_offset_out_of_range_show_where_the_log_begins(serving: ScriptedCluster, error: ErrorCode) -> None:
    serving.brokers[1].on(FETCH, response(error, None))
    with AdminClient(serving.bootstrap) as admin:
        part = admin.read_metadata_log(0, 0)
    assert part.error is not None
    assert (part.error.code, part.controller_epoch, part.log_start_offset, part.high_watermark, part.batches) == (error, 7, 3, 9, b"")


def test_the_controller_of_the_log_is_looked_for_after_not_controller(serving: ScriptedCluster) -> None:
    def moved(_body: object, _version: int) -> messages.MetadataFetchResponse:
        serving.controller_id = 2
        return response(ErrorCode.NOT_CONTROLLER, None, -1)

    serving.brokers[1].on(FETCH, moved)
    serving.brokers[2].on(FETCH, response(records=b"second", epoch=8))
    with AdminClient(serving.bootstrap) as admin:
        assert admin.read_metadata_log(8, 3).batches == b"second"


def test_other_errors_are_raised_and_so_are_records_that_are_missing(serving: ScriptedCluster) -> None:
    with AdminClient(serving.bootstrap) as admin:
        serving.brokers[1].on(FETCH, response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None))
        with pytest.raises(kafka.errors.ClusterAuthorizationFailedError):
            admin.read_metadata_log(7, 3)
        serving.brokers[1].on(FETCH, response(records=None))
        with pytest.raises(BadResponse, match="no records and no error"):
            admin.read_metadata_log(7, 3)


def test_a_controller_without_the_log_is_unsupported(cluster: ScriptedCluster) -> None:
    cluster.add(1)
    with AdminClient(cluster.bootstrap) as admin, pytest.raises(Unsupported, match=r"MetadataFetch \(key 101\)"):
        admin.read_metadata_log(1, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((-2, 0), "controller_epoch"), ((1, -1), "offset"), ((1, 2**63), "offset"), ((2**31, 0), "controller_epoch")],
)
def test_numbers_that_cannot_be_are_refused_before_anything_is_sent(arguments: tuple[int, int], says: str) -> None:
    with AdminClient("127.0.0.1:1") as admin, pytest.raises(ValueError, match=says):
        admin.read_metadata_log(*arguments)
