"""What happens if the processing of an event raises an error. The controller's loop goes on in each case.

* Another controller was elected: check whether `/controller` still names this broker, and resign if it does not.
* The ZooKeeper session was lost: the event ends, and the Expire event follows.
* ZooKeeper refused a write: one line in the log. Requests get UNKNOWN_SERVER_ERROR.
* Any other error is a bug of Klamm: it is logged with its stack trace. Requests get UNKNOWN_SERVER_ERROR.
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
    """Await the processing of events that are processed together. Never raises, except CancelledError.

    An error becomes the response to each request among the events. `lost_epoch` is awaited if another controller was elected.
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
