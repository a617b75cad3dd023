"""UpdateFeatures (57), versions 0-1, of Kafka 4 0-2: change the levels of finalized features. Only the active controller handles it.

A broker with ZooKeeper supports no feature (`server/ground/features.py`), and it ends when another broker finalizes one. So no update
succeeds, and `/feature` is never written: each feature gets INVALID_REQUEST with its reason. A feature that is named several times has one
result, that of its first update. A request without updates succeeds. ValidateOnly makes no difference. Needs ALTER on the cluster. Below
inter-broker protocol 2.7 features have no versions, and the whole request gets INVALID_REQUEST. Source: `KafkaApis.handleUpdateFeatures`
and `KafkaController.processFeatureUpdates` of 3.9.1.

A broker that stands for Kafka 4 has features, and every broker takes the request: what is allowed is written to `/feature`, and all brokers
see it (`handle_levels`). A level that a live broker does not support is refused, since that broker would end. All updates take effect or
none. Compared with 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from klamm.protocol import messages
from klamm.protocol.errors import ErrorCode
from klamm.seams.pace import Pace
from klamm.server.requests.context import Context
from klamm.server.security.authorizer import Operation, ResourceType

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
"""Types of updates since version 1. A downgrade to a level below 1 deletes the feature."""

UPGRADE_TYPE_SINCE = 1
"""Before, an update allows a downgrade or does not."""

NO_RESULTS_SINCE = 2
"""A response of Kafka 4 has one error for all features."""

METADATA_VERSION = "metadata.version"

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


async def handle_levels(ctx: Context, request: Request) -> messages.UpdateFeaturesResponse:
    """Change levels as Kafka 4 does."""
    if not ctx.authorize(Operation.ALTER, ResourceType.CLUSTER):
        return refuse(request, ctx.api_version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    features, levels, pace = ctx.services.features, dict[str, int](), Pace()
    brokers = await ctx.services.admin_store.broker_features() if request.feature_updates else {}
    for update in request.feature_updates:
        await pace()
        name, level = update.feature, update.max_version_level
        current = levels.get(name, features.level(name))
        problem = _problem(ctx, update, _type(update, ctx.api_version), current) or _unsupported(brokers, name, level)
        if problem is not None:
            text = f"The update failed for all features since the following feature had an error: {problem}"
            return refuse(request, ctx.api_version, ErrorCode.INVALID_UPDATE_VERSION, text)
        levels[name] = level
    if levels and not request.validate_only:
        await ctx.services.admin_store.write_features(levels)
    row = messages.UpdateFeaturesResponse.UpdatableFeatureResult
    has_results = ctx.api_version < NO_RESULTS_SINCE
    rows = [row(feature=update.feature, error_message="NONE") for update in request.feature_updates] if has_results else []
    return messages.UpdateFeaturesResponse(error_message=None, results=rows)


def _unsupported(brokers: Mapping[int, Mapping[str, tuple[int, int]]], name: str, level: int) -> str | None:
    """Why a level is refused that a broker does not support: that broker would end. None if all support it."""
    for broker_id, supported in brokers.items():
        low, high = supported.get(name, (0, 0))
        if level > 0 and not low <= level <= high:
            reason = f"only supports versions {low}-{high}" if name in supported else "does not support this feature."
            return f"Invalid update version {level} for feature {name}. Broker {broker_id} {reason}"
    return None


def _problem(ctx: Context, update: Request.FeatureUpdateKey, type_: int, current: int) -> str | None:
    """Why an update of this type is refused, in the words of Kafka 4; None if it is allowed."""
    name, level, services = update.feature, update.max_version_level, ctx.services
    supported, broker_id = services.features.supported.get(name), services.identity.broker_id
    start = f"Invalid update version {level} for feature {name}."
    if type_ not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"{start} The controller does not support the given upgrade type."
    if level < 0:
        return f"{start} A feature version cannot be less than 0."
    if supported is None:
        return f"{start} Local controller {broker_id} does not support this feature."
    if not supported[0] <= level <= supported[1]:
        return f"{start} Local controller {broker_id} only supports versions {supported[0]}-{supported[1]}"
    if level < current:
        if type_ == UPGRADE:
            how = "without setting the upgrade type to either safe or unsafe downgrade."
            return f"{start} Can't downgrade the version of this feature {how}"
        if name == METADATA_VERSION:
            reason = (
                "Refusing to perform the requested downgrade because it might delete metadata information."
                if type_ == SAFE_DOWNGRADE else "Unsafe metadata downgrade is not supported in this version."
            )
            return f"Unsupported metadata.version downgrade from {current} to {level}. {reason}"
    return None


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
