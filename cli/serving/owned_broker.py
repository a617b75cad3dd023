"""One broker of `klamm serve --processes`: `python -m klamm.cli.serving.owned_broker LOG_LEVEL`.

The first line of stdin has the broker's properties as JSON and, for a broker that is steered, `control`, as for `OwnedBroker`.
When the broker is ready, it writes one line of JSON to stdout: its host, port, cluster id and the port of its metrics. If it cannot
start, the line has the reason. When stdin ends, because the owner closed it or died, the broker stops as after SIGTERM. After LIMIT_S the
process ends in any case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from klamm.cli.serving.lifetime import live
from klamm.cli.shell.failures import StoppedEarly, one_line
from klamm.cli.shell.logs import log_to_stderr
from klamm.cli.shell.output import open_standard_streams, say
from klamm.cli.shell.stop_signals import StopSignals
from klamm.machine.collector import collect_seldom

if TYPE_CHECKING:
    from klamm.control.processes.owned_broker import OwnedBroker
    from klamm.server.broker_server import BrokerServer

LIMIT_S = 2.0


def main() -> None:
    """Run the broker. The exit code is 1 if it cannot start."""
    collect_seldom()
    open_standard_streams()
    log_to_stderr(sys.argv[1])
    signals = StopSignals()
    with open(0, "rb", buffering=0, closefd=False) as owner:
        first_line: dict[str, Any] = json.loads(owner.readline())
    threading.Thread(target=_stop_with_owner, name="owner", daemon=True).start()

    from klamm.configs.broker_config import BrokerConfig
    from klamm.server.broker_server import BrokerServer
    from klamm.server.run import run

    async def serve() -> None:
        config, control = BrokerConfig(first_line["properties"]), first_line["control"]
        make = partial(BrokerServer, config, patient=False)
        if control is None:
            broker = make()
            serving: BrokerServer | OwnedBroker = broker
        else:
            from klamm.control.processes.owned_broker import OwnedBroker

            serving = OwnedBroker(lambda seams: make(seams=seams), control, lambda line: say(json.dumps(line)))
            broker = serving.broker

        def ready() -> None:
            endpoint = next(e for e in broker.advertised if e.listener == broker.inter_broker_listener)
            metrics_port = None if broker.endpoint is None else broker.endpoint.port
            ready_line = {"host": endpoint.host, "port": endpoint.port, "cluster_id": broker.cluster_id, "metrics_port": metrics_port}
            say(json.dumps(ready_line))

        await live(serving, signals, ready, broker.failure)

    try:
        run(serve)
    except StoppedEarly as stopped:  # the owner requested it
        sys.exit(stopped.exit_code)
    except Exception as failure:
        line = one_line(failure)
        if line is None:
            raise
        say(json.dumps({"error": line}))
        sys.exit(1)


def _stop_with_owner() -> NoReturn:
    """Wait until stdin ends, then stop this process."""
    while os.read(0, 1024):  # unbuffered: the lock of a buffer would still be held when the interpreter exits
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIMIT_S)
    os._exit(1)


if __name__ == "__main__":
    main()
