"""AlterInterbrokerThrottledRates (1791), version 0: throttle brokers, as leaders and as followers, in bytes per second (KIP-179).

Needs ALTER on the cluster. Replaces the rates that an earlier request of this kind has set. With RemoveThrottle the controller removes the
rates when the last reassignment is complete. The response is sent when everything is done. A broker whose rates are not set within
`Timeout` (ms after reception) gets REQUEST_TIMED_OUT, and the work continues. A broker that is named twice is refused and reported once.
A rate below 1 KB/s is set, and the row of its broker has a warning beside the error code 0.
Layout and errors: controller 22.3, 22.6.
"""

from __future__ import annotations

from klamm.controller.decisions.throttled_replicas import slow_warning
from klamm.protocol import messages
from klamm.protocol.errors import ApiError, ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.requests.timed_results import Entries
from klamm.server.security.authorizer import Operation, ResourceType


async def handle(ctx: Context, request: messages.AlterInterbrokerThrottledRatesRequest) -> messages.AlterInterbrokerThrottledRatesResponse:
    received = ctx.services.clock.monotonic()
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ctx.needs(Operation.ALTER))
    rates: Entries[int, tuple[int, int]] = Entries()
    pace = Pace()
    for entry in request.brokers:
        await pace()
        rates.add(entry.broker_id, (entry.leader_rate, entry.follower_rate))
    work = ctx.services.controller.alter_throttled_rates(
        rates.wanted,
        remove_throttle=request.remove_throttle,
        validate_only=request.validate_only,
        refused=rates.refused,
        cause=ctx.cause,
    )
    try:
        results = await rates.results(ctx.services.clock, work, received, request.timeout)
    except ApiError as error:
        return refuse(request, ctx.api_version, error.code, error.message)
    response = messages.AlterInterbrokerThrottledRatesResponse
    encode = messages.struct_encoder("AlterInterbrokerThrottledRatesResponse", "BrokerResult", ctx.api_version)
    rows: list[bytes] = []
    for broker_id, result in results.items():
        await pace()
        code, message = result
        if code is ErrorCode.NONE:
            message = slow_warning(*rates.wanted[broker_id])
        rows.append(encode(response.BrokerResult(broker_id, code, message)))
    return response(brokers=rows)


def refuse(
    request: messages.AlterInterbrokerThrottledRatesRequest, version: int, code: ErrorCode, message: str | None = None
) -> messages.AlterInterbrokerThrottledRatesResponse:
    response = messages.AlterInterbrokerThrottledRatesResponse
    return response(
        brokers=[response.BrokerResult(broker_id=b.broker_id, error_code=code, error_message=message) for b in request.brokers]
    )
