"""What an error does to the event that was being processed: the table of faults. The loop goes on after each of them.

A lost controller epoch looks whether `/controller` still names this broker and resigns if not; a lost session ends the event, the Expire
event follows; what ZooKeeper refuses ends the event with one line in the log; anything else is a fault of ours: logged with its trace.
The last two get the response UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from klamm.controller.events import catalogue as events
from klamm.controller.events.catalogue import Event
from klamm.controller.values import ControllerMoved, StoreLost, StoreRefused
from klamm.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("klamm.controller")


async def contain(broker_id: int, together: Sequence[Event], work: Awaitable[None], *, lost_epoch: Callable[[], Awaitable[None]]) -> None:
    """Await the work on some events, the first of which began it. Every error ends here, and is the response to all requests among them.

    `lost_epoch` is awaited when another controller was elected.
    """
    event = together[0]
    name = type(event).__name__
    respond: Callable[[events.Request], None] = partial(events.refuse, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        await work
        return
    except asyncio.CancelledError:
        respond = events.preempt
        raise
    except ControllerMoved as e:
        log.warning("broker %d: another controller was elected (%s)", broker_id, e)
        respond = events.preempt
        await lost_epoch()
    except StoreLost as e:
        log.warning("broker %d: %s ended early because the ZooKeeper session ended: %s", broker_id, name, e)
        respond = events.preempt
    except StoreRefused as e:
        log.error("broker %d: %s failed, ZooKeeper refused: %s", broker_id, name, e)
    except ApiError as e:
        if not isinstance(event, events.Request):
            log.exception("broker %d: %s failed", broker_id, name)
        respond = partial(events.refuse, error=e.code, message=e.message)
    except Exception:
        log.exception("broker %d: %s failed", broker_id, name)
    finally:
        for request in together:
            if isinstance(request, events.Request):
                respond(request)
