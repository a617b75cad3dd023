"""Which modules the start of a broker imports: `start_modules.txt` beside this file holds them.

    python -m klamm.tests.start_modules   # writes the list of this checkout

What a start does not need is imported where it is used: a broker starts in a fraction of a second, and every module costs a part of it. The
standard library is left out, as it differs between versions of Python.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).with_name("start_modules.txt")

_PROGRAM = """
import sys
before = set(sys.modules)
import klamm.cli.serving.broker
import klamm.configs.properties
from klamm.configs.broker_config import BrokerConfig
from klamm.server.broker_server import BrokerServer
from klamm.server.run import run

async def made():
    BrokerServer(BrokerConfig({"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": "127.0.0.1:1"}))

run(made)
names = {name if name.startswith("klamm") else name.partition(".")[0] for name in set(sys.modules) - before}
print("\\n".join(sorted(name for name in names if name.partition(".")[0] not in sys.stdlib_module_names)))
"""


def imported() -> list[str]:
    """Klamm's modules by name, packages of others by their top name."""
    return subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout.splitlines()


def held() -> list[str]:
    """Those of the file."""
    return LIST.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in imported()), encoding="utf-8")
