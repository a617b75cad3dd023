"""The verbs of `Control` for phases, holds and faults."""

from __future__ import annotations

from klamm.control import conditions, views
from klamm.control.bodies import FailBody, FaultBody, HoldBody, LinkBody, fault_of, faults_of_link
from klamm.control.broker_control import BrokerControl
from klamm.control.conditions import condition_of
from klamm.control.holds import MAX_HOLDS, check_brokers, failure_of, hold_of
from klamm.control.json_object import JsonObject
from klamm.control.refusal import Refused
from klamm.control.verbs.parts import Call, call
from klamm.control.verbs.shares import FaultShares, HoldShares
from klamm.control.verbs.subject import Subject
from klamm.seams.steering import Steering
from klamm.server.faults.fault import MAX_FAULTS, Fault
from klamm.server.phases import phase_table

__tracebackhide__ = True  # pytest leaves out the lines of this module


class HoldVerbs(Subject):
    """Phases, holds and faults."""

    async def phases(self) -> JsonObject:
        """All phases with their fields."""
        return {"phases": [row._asdict() for row in phase_table()]}

    # --- holds

    async def hold(self, body: HoldBody) -> JsonObject:
        """Hold phases from now on."""
        check_brokers(body, self.cluster.count)
        present = self.state.holds.values()
        if len(present) >= MAX_HOLDS:
            raise Refused(f"there are {MAX_HOLDS} holds already; delete some")
        hold_of(body, Steering())
        for other in present:
            if other.state != "released" and (other.body.phase, other.body.where) == (body.phase, body.where):
                raise Refused(f"hold {other.number} holds {body.phase} with the same fields already", 409)
        hold = await self.state.add_hold(lambda number: HoldShares(number, body))
        self.events.add("hold", hold.as_json())
        return {"id": hold.number}

    async def holds(self) -> JsonObject:
        """All holds."""
        missing = await self.state.look_at_holds()
        return {"holds": [hold.as_json() for hold in self.state.holds.values()]} | missing

    async def hold_state(self, number: int, *, wait: str | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A hold. `wait=reached` waits until it holds something."""
        hold = self.hold_shares(number)
        if wait is None:
            return await self._shown_hold(hold)
        if wait != "reached":
            raise Refused(f"wait={wait}: a hold can be waited for with wait=reached")

        async def reached() -> JsonObject | None:
            shown = await self._shown_hold(hold)
            return shown if shown["at"] is not None else None

        return await self.state.until(
            reached, lambda _: call(BrokerControl.hold_reached, number), timeout_ms,
            lambda: f"hold {number} of {hold.body.phase} is {hold.state}",
        )

    async def release(self, number: int) -> JsonObject:
        """End a hold: everything that it holds goes on."""
        hold = self.hold_shares(number)
        hold.released = True
        await self.state.sync()
        shown = await self._shown_hold(hold)
        self.events.add("released", shown)
        return shown

    async def step(self, number: int) -> JsonObject:
        """Let the first that is held go on; the hold stays."""
        return await self._act(number, call(BrokerControl.step, number))

    async def fail(self, number: int, body: FailBody) -> JsonObject:
        """Let the event of the first that is held fail."""
        failure_of(body)
        return await self._act(number, call(BrokerControl.fail, number, body))

    async def crash(self, number: int) -> JsonObject:
        """Kill the broker that is held first, as it stands there."""
        hold, broker = await self._first_held(number)
        self.killed.add(broker)
        await self.cluster.crash_broker(broker, expire=True)
        self.events.add("crashed", {"broker": broker, "hold": number})
        return {"broker": broker, **hold.as_json()}

    async def delete_holds(self) -> JsonObject:
        """End all holds, and forget them."""
        return await self._delete_holds(list(self.state.holds))

    async def delete_hold(self, number: int) -> JsonObject:
        """End a hold, and forget it."""
        return await self._delete_holds([self.hold_shares(number).number])

    async def _delete_holds(self, numbers: list[int]) -> JsonObject:
        for each in numbers:
            self.state.holds.pop(each).end()
        await self.state.sync()
        return {"deleted": len(numbers)}

    def hold_shares(self, number: int) -> HoldShares:
        """The hold with this number. Raises Refused."""
        if number not in self.state.holds:
            raise Refused(f"there is no hold {number}", 404)
        return self.state.holds[number]

    async def _shown_hold(self, hold: HoldShares) -> JsonObject:
        missing = await self.state.look_at_holds()
        return hold.as_json() | missing

    async def _first_held(self, number: int) -> tuple[HoldShares, int]:
        hold = self.hold_shares(number)
        shown = await self._shown_hold(hold)
        if shown["at"] is None:
            raise Refused(f"hold {number} is {hold.state}: it holds nothing", 409)
        return hold, shown["at"]["broker"]

    async def _act(self, number: int, wanted: Call[None]) -> JsonObject:
        hold, broker = await self._first_held(number)
        await self.parts.one(broker, wanted)
        await self._shown_hold(hold)
        return hold.as_json()

    # --- faults

    async def add_fault(self, body: FaultBody) -> JsonObject:
        """A new fault, at all brokers that it is about."""
        if len(self.state.faults) >= MAX_FAULTS:
            raise Refused(f"there are {MAX_FAULTS} faults already; remove some")
        brokers = range(1, self.cluster.count + 1)
        parts, condition = fault_of(body, [*brokers]), None
        if body.filter.while_ is not None:
            await self.state.look_at_holds()
            conditions.check(body.filter, self.state, brokers)
            condition = condition_of(body.filter.while_, lambda: True)
        fault = await self.state.add_fault(lambda number: FaultShares(number, body, views.fault(Fault(number, *parts, condition))))
        self.events.add("fault", fault.as_json())
        return {"id": fault.number}

    async def faults(self) -> JsonObject:
        """All faults."""
        missing = await self.state.look_at_faults()
        return {"faults": [fault.as_json() for fault in self.state.faults.values()]} | missing

    async def fault(self, number: int, *, hits: int | None = None, timeout_ms: int = 30_000) -> JsonObject:
        """A fault with its hits. With `hits` it is waited for until it has this number of them."""
        fault = self.fault_shares(number)

        async def reached() -> JsonObject | None:
            missing = await self.state.look_at_faults()
            enough = hits is None or fault.hits >= hits or number not in self.state.faults
            return fault.as_json() | missing if enough else None

        def next_hit(part: int) -> Call[None]:
            return call(BrokerControl.fault_reached, number, 1 + (fault.seen[part].hits if part in fault.seen else 0))

        return await self.state.until(reached, next_hit, timeout_ms, lambda: f"fault {number} has {fault.hits} of {hits} hits")

    async def delete_faults(self) -> JsonObject:
        """Remove all faults."""
        return await self._delete_faults(list(self.state.faults.values()))

    async def delete_fault(self, number: int) -> JsonObject:
        """Remove a fault."""
        return await self._delete_faults([self.fault_shares(number)])

    async def _delete_faults(self, faults: list[FaultShares]) -> JsonObject:
        await self.state.look_at_faults()
        for fault in faults:
            self.state.faults.pop(fault.number, None)
        await self.state.sync()
        return {"deleted": len(faults), "faults": [fault.as_json() for fault in faults]}

    async def add_link(self, body: LinkBody) -> JsonObject:
        """Faults on the requests that one broker sends to another, in one direction or in both."""
        return {"faults": [(await self.add_fault(fault))["id"] for fault in faults_of_link(body)]}

    def fault_shares(self, number: int) -> FaultShares:
        """The fault with this number. Raises Refused."""
        if number not in self.state.faults:
            raise Refused(f"there is no fault {number}", 404)
        return self.state.faults[number]
