"""A broker without a network that answers requests one by one."""

from typing import Any

from klamm.protocol import messages
from klamm.server.apis import describe_cluster, leader_and_isr, metadata, stop_replica, update_metadata
from klamm.server.requests.services import Services
from klamm.tests.services import broker_config, make_context, make_services

HANDLERS = {3: metadata, 4: leader_and_isr, 5: stop_replica, 6: update_metadata, 60: describe_cluster}
KEYS = ("nodeId", "brokerId", "topicId", "name", "topicName", "partitionIndex")


def sorted_lists(value: Any) -> Any:
    """The same JSON with rows in one order, and texts of errors left out."""
    if isinstance(value, dict):
        return {k: bool(v) if k == "errorMessage" else sorted_lists(v) for k, v in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return sorted((sorted_lists(v) for v in value), key=lambda row: [str(row.get(key)) for key in KEYS])
    return value


def new_broker(about: dict[str, Any]) -> Services:
    """The broker that the recording is of, before its first request."""
    return make_services(
        broker_id=about["broker_id"],
        broker_epoch=about["broker_epoch"],
        cluster_id=about["cluster_id"],
        config=broker_config(about["broker_id"], auto_create_topics_enable=False),
    )


def answer(services: Services, payload: bytes) -> tuple[messages.Api, messages.RequestHeader, bytes]:
    header, offset = messages.decode_request_header(payload)
    api = messages.APIS[header.api_key]
    request, _ = messages.decode(f"{api.name}Request", header.api_version, payload, offset)
    response = HANDLERS[api.key].handle(make_context(services, api.key, header.api_version), request)
    return api, header, response if isinstance(response, bytes) else messages.encode(response, header.api_version)
