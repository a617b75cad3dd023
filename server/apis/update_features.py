"""UpdateFeatures (57), versions 0-1: change the levels of finalized features. Only the active controller handles it.

A broker with ZooKeeper supports no feature (`server/ground/features.py`), and it ends when another broker finalizes one. So no update
succeeds, and `/feature` is never written: each feature gets INVALID_REQUEST with its reason. A feature that is named several times has one
result, that of its first update. A request without updates succeeds. ValidateOnly makes no difference. Needs ALTER on the cluster. Below
inter-broker protocol 2.7 features have no versions, and the whole request gets INVALID_REQUEST. Source: `KafkaApis.handleUpdateFeatures`
and `KafkaController.processFeatureUpdates` of 3.9.1.
"""

from __future__ import annotations

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Types of updates since version 1. A downgrade to a level below 1 deletes the feature."""

UPGRADE_TYPE_SINCE = 1
"""Before, an update allows a downgrade or does not."""

Request = messages.UpdateFeaturesRequest


async def handle(ctx: Context, request: Request) -> messages.UpdateFeaturesResponse:
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    if not ctx.services.controller.is_active:
        return refuse(request, ctx.api_version, ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
    if not ctx.services.config.inter_broker_protocol_version.has_feature_versioning:
        return refuse(request, ctx.api_version, ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.")
    row = messages.UpdateFeaturesResponse.UpdatableFeatureResult
    pace, results = Pace(), dict[str, messages.UpdateFeaturesResponse.UpdatableFeatureResult]()
    for update in request.feature_updates:
        await pace()
        if update.feature not in results:
            reason = _reason(update, _type(update, ctx.api_version))
            results[update.feature] = row(feature=update.feature, error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    return messages.UpdateFeaturesResponse(error_message=None, results=list(results.values()))


def refuse(request: Request, version: int, code: ErrorCode, message: str | None = None) -> messages.UpdateFeaturesResponse:
    return messages.UpdateFeaturesResponse(error_code=code, error_message=message)


def _type(update: Request.FeatureUpdateKey, version: int) -> int:
    if version < UPGRADE_TYPE_SINCE:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _reason(update: Request.FeatureUpdateKey, type_: int) -> str:
    """Why an update of this type fails."""
    if not update.feature:
        return "Feature name can not be empty."
    if type_ not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if type_ == UPGRADE:
        level = update.max_version_level
        return f"Can not provide versionLevel: {level} less than 1 without setting the SAFE downgradeType in the request."
    return "Can not delete non-existing finalized feature."
