"""One broker of `klamm serve --processes`: `python -m klamm.cli.owned_broker LOG_LEVEL`.

Standard input has the broker's properties as one line of JSON. When the broker serves, one line of JSON goes to standard output: its host,
port and cluster id, or the reason why it cannot start. The end of standard input, by the owner's wish or by its death, is as SIGTERM: the
broker stops in order, and after LIMIT_S in any case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from klamm.cli.failures import StoppedEarly, one_line
from klamm.cli.lifetime import StopSignals, live
from klamm.cli.logs import log_to_stderr
from klamm.cli.output import open_standard_streams, say

LIMIT_S = 2.0


def main() -> None:
    """Run the broker; exit code 1 when it cannot start."""
    open_standard_streams()
    log_to_stderr(sys.argv[1])
    signals = StopSignals()
    with open(0, "rb", buffering=0, closefd=False) as owner:
        properties: dict[str, str] = json.loads(owner.readline())
    threading.Thread(target=_stop_with_owner, name="owner", daemon=True).start()

    from klamm.configs.broker_config import BrokerConfig
    from klamm.server.broker_server import BrokerServer
    from klamm.server.run import run

    async def serve() -> None:
        broker = BrokerServer(BrokerConfig(properties), patient=False)

        def ready() -> None:
            endpoint = next(e for e in broker.advertised if e.listener == broker.inter_broker_listener)
            say(json.dumps({"host": endpoint.host, "port": endpoint.port, "cluster_id": broker.cluster_id}))

        await live(broker, signals, ready, broker.failure)

    try:
        run(serve)
    except StoppedEarly as stopped:  # its owner wanted that
        sys.exit(stopped.exit_code)
    except Exception as failure:
        line = one_line(failure)
        if line is None:
            raise
        say(json.dumps({"error": line}))
        sys.exit(1)


def _stop_with_owner() -> NoReturn:
    """Wait for the end of standard input, then stop this process."""
    while os.read(0, 1024):  # without a buffer: its lock would be in use when the interpreter ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIMIT_S)
    os._exit(1)


if __name__ == "__main__":
    main()
