"""`/controller`, `/controller_epoch` and `/feature`: the election of a controller and the setup of features (layout 3.1, 3.11)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from klamm.controller.values import ControllerEpoch, ControllerMoved, StoreRefused
from klamm.protocol.nouns import next_epoch
from klamm.zk.layout import paths
from klamm.zk.layout import znodes as layout
from klamm.zk.layout.json_values import Unreadable
from klamm.zk.layout.znodes import FeatureNode
from klamm.zk.session.requests import BAD_VERSION, NODE_EXISTS, BadVersion, MultiFailed, NodeExists, NoNode
from klamm.zk.store.base import ZkArea

log = logging.getLogger("klamm.zk.store.store")


class ZkControllerElection(ZkArea):
    """`/controller` and its epoch. A successful election sets the new epoch for all fenced writes of the store."""

    async def watch_controller(self) -> None:
        await self._session.exists(paths.CONTROLLER, self._seen)

    async def controller_epoch(self) -> int:
        node = await self._session.get(paths.CONTROLLER_EPOCH)
        try:
            return 0 if node is None else layout.decode_controller_epoch(node.data)
        except Unreadable:
            return -1

    async def controller_id(self) -> int:
        while True:
            node = await self._session.get(paths.CONTROLLER, self._seen)
            if node is not None:
                controller = layout.decode_controller(node.data)
                return -1 if controller is None else controller.broker_id
            # Reading a missing znode sets no watch.
            if await self._session.exists(paths.CONTROLLER, self._seen) is None:
                return -1

    async def register_controller(self, broker_id: int, timestamp_ms: int, *, shows_session: bool = False) -> ControllerEpoch:
        generation = self._session.generation
        epoch, version = await self._controller_epoch()
        ops = self._session.ops
        show = await self._show_session(broker_id) if shows_session else []
        try:
            _, stat, *_ = await self._session.multi(
                [
                    ops.create(paths.CONTROLLER, layout.encode_controller(broker_id, timestamp_ms), ephemeral=True),
                    ops.set_data(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(next_epoch(epoch)), version),
                    *show,
                ],
                results=True,
            )
            elected = ControllerEpoch(next_epoch(epoch), stat.version)
        except MultiFailed as failure:
            if failure.code not in (NODE_EXISTS, BAD_VERSION):
                raise StoreRefused(f"the election was refused: {failure}") from failure
            elected = await self._elected_after_all(broker_id, next_epoch(epoch))
        self._fence.raise_to(elected.zk_version, generation)
        return elected

    async def _show_session(self, broker_id: int) -> list[bytes]:
        """Operations that make the session of the controller visible outside `/controller`; empty if it is visible already."""
        path = paths.controller_session_path(broker_id)
        while True:
            node = await self._session.exists(path)
            if node is None:
                break
            if node.ephemeral_owner == self._session.session_id:
                return []
            await self._session.delete(path)  # from before a restart of this broker
        if await self._session.exists(paths.CONTROLLER_SESSIONS) is None:
            try:
                await self._session.create(paths.CONTROLLER_SESSIONS, None, makepath=True)
            except NodeExists:
                pass
        return [self._session.ops.create(path, None, ephemeral=True)]

    async def shows_session(self, broker_id: int) -> bool:
        return await self._session.exists(paths.controller_session_path(broker_id)) is not None

    async def _controller_epoch(self) -> tuple[int, int]:
        while True:
            node = await self._session.get(paths.CONTROLLER_EPOCH)
            if node is not None:
                return layout.decode_controller_epoch(node.data), node.version
            try:
                await self._session.create(paths.CONTROLLER_EPOCH, layout.encode_controller_epoch(0))
            except NodeExists:
                continue

    async def _elected_after_all(self, broker_id: int, epoch: int) -> ControllerEpoch:
        """The epoch, if `/controller` has our id and epoch: then an earlier attempt succeeded and its response was lost. Raises
        ControllerMoved.
        """
        node = await self._session.get(paths.CONTROLLER)
        controller = layout.decode_controller(node.data) if node is not None else None
        if controller is not None and controller.broker_id == broker_id:
            stored, version = await self._controller_epoch()
            if stored == epoch:
                return ControllerEpoch(epoch, version)
        winner = "another broker" if controller is None else f"broker {controller.broker_id}"
        raise ControllerMoved(f"{winner} was elected")

    async def delete_controller(self) -> None:
        await self._delete([paths.CONTROLLER])

    async def end_leftover(self, broker_id: int) -> bool:
        """Delete a `/controller` that names this broker although it is not the controller. Its old session, if it still exists, ends by its
        timeout.
        """
        _, epoch_version = await self._controller_epoch()
        node = await self._session.get(paths.CONTROLLER)
        controller = layout.decode_controller(node.data) if node is not None else None
        if controller is None or controller.broker_id != broker_id:
            return False
        log.warning("/controller names broker %d, which is not acting as controller; deleting it", broker_id)
        ops = self._session.ops
        try:
            await self._session.multi([ops.check(paths.CONTROLLER_EPOCH, epoch_version), ops.delete(paths.CONTROLLER)])
        except MultiFailed as failure:
            log.debug("/controller was not deleted: %s", failure)
        return True

    def reset_fence(self) -> None:
        self._fence.drop()


class ZkFeature(ZkArea):
    """`/feature` in the format for the inter-broker protocol."""

    _feature_version: int | None
    _first_features: tuple[tuple[str, int], ...]
    _feature_seen: Callable[[int], Awaitable[None]]

    async def setup_feature(self) -> None:
        version = self._feature_version
        first = {name: {"max_version_level": level} for name, level in self._first_features}
        wanted = FeatureNode(1, False, {}) if version is None else FeatureNode(version, True, first)
        while True:
            node = await self._session.get(paths.FEATURE)
            if node is None:
                try:
                    await self._session.create(paths.FEATURE, layout.encode_feature(wanted))
                except NodeExists:
                    continue
                await self._feature_written(0)
                return
            try:
                found = layout.decode_feature(node.data)
            except Unreadable as problem:
                log.warning("%s; writing it again", problem)
                found = FeatureNode(0, False, {})
            if version is not None and found.enabled:
                wanted = FeatureNode(version, True, _feature_levels(found.features, version))
            if found != wanted:
                try:
                    stat = await self._session.set(paths.FEATURE, layout.encode_feature(wanted), node.version)
                except (BadVersion, NoNode):
                    continue  # somebody else has written it, or removed it
                await self._feature_written(stat.version)
            return

    async def _feature_written(self, version: int) -> None:
        """Wait until this broker's own watch has seen the new `/feature`; the fail-over continues after this (layout 3.11)."""
        if self._feature_version is not None:
            await self._feature_seen(version)


def _feature_levels(features: dict[str, Any], version: int) -> dict[str, Any]:
    """The finalized features in the format of a JSON version: version 1 also has a minimum level."""
    if version == 1:
        return {name: {"min_version_level": 1, **levels} for name, levels in features.items()}
    return {name: {"max_version_level": levels["max_version_level"]} for name, levels in features.items()}
