"""RegisterBroker (100), version 0, from a draft KIP: a broker registers with the controller instead of in ZooKeeper.

Needs CLUSTER_ACTION on the cluster. Only the active controller registers brokers. The response has the new broker epoch and the state
FENCED, or an error with epoch -1 and the stored state of the broker. The rules are in `controller/brokers/register_broker.py`;
source: controller 25.
"""

from __future__ import annotations

from klamm.controller.values import BrokerToRegister
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.protocol.nouns import NO_EPOCH, Endpoint
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.RegisterBrokerRequest) -> messages.RegisterBrokerResponse:
    controller = ctx.services.controller
    try:
        if not ctx.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.needs(Operation.CLUSTER_ACTION))
        endpoints = tuple(Endpoint(e.listener, e.host, e.port, e.security_protocol) for e in request.endpoints)
        registration = await controller.register_broker(
            BrokerToRegister(request.broker_id, endpoints, request.rack_id, request.secret), ctx.peer, ctx.cause
        )
    except ApiError as error:
        response = refuse(request, ctx.api_version, error.code, error.message)
        return response._replace(state=controller.registered_state(request.broker_id))
    return messages.RegisterBrokerResponse(error_message=None, broker_epoch=registration.epoch, state=registration.state)


def refuse(
    request: messages.RegisterBrokerRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.RegisterBrokerResponse:
    return messages.RegisterBrokerResponse(error_code=code, error_message=message, broker_epoch=NO_EPOCH)
