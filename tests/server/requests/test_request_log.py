"""At DEBUG every request is one line, and every event of the controller; what is not offered is said once to each client."""

from __future__ import annotations

import logging
import re

import pytest

from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.server.apis.handlers import HANDLERS
from klamm.server.local.arguments import SeedTopic
from klamm.server.local.cluster import LocalCluster
from klamm.server.requests.dispatch import Handler
from klamm.server.requests.peer import Peer
from klamm.server.requests.response_cache import ResponseCache
from klamm.server.requests.unsupported_apis import MAX_CLIENTS, NOT_OFFERED, NotOfferedLog
from klamm.tests.harness.waits import eventually
from klamm.tests.server import wire
from klamm.tests.server.brokers import request
from klamm.tests.server.conftest import Connect, Serve

REQUESTS, CONTROLLER = "klamm.server.requests.request_log", "klamm.controller"


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == logger]


async def deleted_and_not(ctx, req):
    """One topic is deleted, two are unknown."""
    row = messages.DeleteTopicsResponse.DeletableTopicResult
    return messages.DeleteTopicsResponse(responses=[row(name=name, error_code=code) for name, code in (("a", 0), ("b", 3), ("c", 3))])


async def test_every_request_is_a_line_also_those_that_could_be_answered_from_bytes(
    serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await serve({ApiKey.DELETE_TOPICS: Handler(deleted_and_not)})
    peer = await connect(listener.port)
    known = wire.request(ApiKey.API_VERSIONS, 2, 1, messages.ApiVersionsRequest(), "first\r\nsecond")
    peer.send(known)
    await peer.answer()
    assert lines(caplog, REQUESTS) == []
    peer.send(known)
    await peer.answer()
    assert listener.responses_of().by_frame  # it is given from bytes now
    caplog.set_level(logging.DEBUG, REQUESTS)
    listener.forget_responses()
    for _ in range(2):
        peer.send(known)
        await peer.answer()
    peer.send(wire.request(ApiKey.DELETE_TOPICS, 5, 4, messages.DeleteTopicsRequest(topic_names=["a", "b", "c"], timeout_ms=1), "x" * 500))
    await peer.answer()
    peer.send(wire.request(ApiKey.API_VERSIONS, 3, 5, messages.ApiVersionsRequest()).replace(b"\0\x12\0\x03", b"\0\x12\0\x63"))
    await peer.answer()
    peer.send(wire.request(ApiKey.METADATA, 12, 6, messages.MetadataRequest())[:-1] + b"\xff")
    assert await peer.answer() is None
    timeless = [re.sub(r", \d+\.\d{3} ms$", "", line) for line in lines(caplog, REQUESTS)]
    again = r"ApiVersions v2 from client 'first\r\nsecond' at 127.0.0.1 on PLAINTEXT: NONE"
    assert timeless[:4] == [
        again,
        again,
        f"DeleteTopics v5 from client '{'x' * 100}…' at 127.0.0.1 on PLAINTEXT: UNKNOWN_TOPIC_OR_PARTITION ×2",
        "ApiVersions v99 from client 'test' at 127.0.0.1 on PLAINTEXT: UNSUPPORTED_VERSION",
    ]
    assert timeless[4].startswith("Metadata v12 from client 'test' at 127.0.0.1 on PLAINTEXT: connection closed, ")
    assert len(timeless) == 5


async def test_the_log_can_be_switched_on_by_kafka_s_name_while_answers_are_kept(
    zookeeper: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LocalCluster(1, zookeeper=zookeeper + chroot)
    await cluster.start()
    try:
        (node,) = cluster.brokers
        kinds = messages.IncrementalAlterConfigsRequest

        async def change(operation: int, value: str | None) -> None:
            config = kinds.AlterableConfig(name="kafka.request.logger", config_operation=operation, value=value)
            resource = kinds.AlterConfigsResource(resource_type=8, resource_name="1", configs=[config])
            answer = await request(node, 44, 1, kinds(resources=[resource]))
            assert [row.error_code for row in answer.responses] == [0]

        for _ in range(2):
            await request(node, 3, 12, messages.MetadataRequest(topics=None))
        await change(0, "DEBUG")
        caplog.clear()
        await request(node, 3, 12, messages.MetadataRequest(topics=None))
        assert [line.split(" from ")[0] for line in lines(caplog, REQUESTS)] == ["Metadata v12"]
        await change(1, None)
        caplog.clear()
        await request(node, 3, 12, messages.MetadataRequest(topics=None))
        assert lines(caplog, REQUESTS) == []
    finally:
        logging.getLogger(REQUESTS).setLevel(logging.NOTSET)
        await cluster.stop()


async def test_every_event_of_the_controller_is_a_line_with_what_it_decided(
    zookeeper: str, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, CONTROLLER)
    config = {"auto.leader.rebalance.enable": "false"}
    cluster = LocalCluster(2, zookeeper=zookeeper + chroot, config=config, topics=[SeedTopic("small", 1, 2), SeedTopic("large", 9, 1)])
    await cluster.start()
    try:
        await cluster.move_controller(1)

        def decided(event: str) -> list[str]:
            return [line for line in lines(caplog, CONTROLLER) if f" {event} " in line and "no state changed" not in line]

        (created,) = decided("TopicChange")
        assert re.fullmatch(
            r"broker [12]: event \d+ TopicChange \(a watch fired\): \d+\.\d ms; "
            r"(small|large)-0 leader [12] isr [12](,[12])? leader epoch 0 partition epoch 0, .*"
            r" and 5 more; LeaderAndIsr to 1,2; UpdateMetadata to 1,2",
            created,
        )
        caplog.clear()
        await cluster.stop_broker(2)
        shutdown = decided("ControlledShutdown broker_id 2 broker_epoch")
        assert len(shutdown) == 1
        assert re.search(r"small-0 leader 1 isr 1 leader epoch \d", shutdown[0])
        caplog.clear()
        await cluster.start_broker(2)
        await eventually(lambda: decided("BrokerChange"), "the controller brings the broker's partitions online")
        assert any("large" in line and "leader 2 isr 2" in line for line in decided("BrokerChange"))
        # a broker that is not the controller says so, and a cluster that nobody watches any more takes states as ever
        await cluster.move_controller(2)
        assert any(line.endswith("ms; not the controller") for line in lines(caplog, CONTROLLER))
        term = cluster.brokers[1].controller.term
        assert term is not None
        await eventually(lambda: term.cluster._see is None, "the last event is handled")
    finally:
        await cluster.stop()


def test_every_api_without_a_handler_is_described_in_words() -> None:
    missing = {api.name for key, api in messages.APIS.items() if key not in HANDLERS and not api.draft}
    assert missing == NOT_OFFERED.keys()


async def test_what_is_not_offered_is_said_once_to_each_client(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    listener = await serve()
    for client_id, api_key in (("a", ApiKey.ENVELOPE), ("a", ApiKey.ENVELOPE), ("b\n", ApiKey.ENVELOPE)):
        peer = await connect(listener.port)
        peer.send(wire.request(ApiKey.API_VERSIONS, 2, 1, messages.ApiVersionsRequest(), client_id))
        peer.send(messages.encode_request(api_key, 0, 2, client_id, b""))
        assert await peer.correlation_ids(1) == [1]
        assert await peer.answer() is None
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "client 'a' at 127.0.0.1 sent Envelope (forwarded requests), which Klamm does not support yet",
        r"client 'b\n' at 127.0.0.1 sent Envelope (forwarded requests), which Klamm does not support yet",
    ]


async def test_keys_that_nobody_knows_are_bad_requests(serve: Serve, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    listener = await serve()
    for api_key in (999, 1790):
        peer = await connect(listener.port)
        peer.send(messages.encode_request(10, 0, 2, "a", b"").replace(b"\0\x0a\0\0", api_key.to_bytes(2, "big") + b"\0\0"))
        assert await peer.answer() is None
        assert f"API {api_key} is unknown" in caplog.messages[-1]


def test_clients_that_change_their_names_fill_neither_memory_nor_log(caplog: pytest.LogCaptureFixture) -> None:
    told = NotOfferedLog()
    for number in range(3 * MAX_CLIENTS):
        told.write(1, f"client-{number}", "127.0.0.1")
        told.write(1, f"client-{number}", "127.0.0.1")
    assert len(caplog.records) == MAX_CLIENTS + 1 == len(told._written)


def test_without_debug_a_request_is_looked_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """No line is begun, nothing is decoded a second time."""
    dispatcher = wire.make_dispatcher(wire.HANDLERS)
    dispatcher._logged = None  # type: ignore[method-assign, assignment]
    payload = wire.request(ApiKey.METADATA, 12, 1, messages.MetadataRequest())[4:]
    assert isinstance(dispatcher.begin(Peer("PLAINTEXT", "127.0.0.1", ResponseCache()), payload), bytes)
