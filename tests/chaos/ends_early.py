"""`klamm` with a planted fault: after `reset` of its control API its process ends as soon as somebody asks for committed offsets."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from klamm.cli.main import main
from klamm.control.verbs.model import Control
from klamm.server.apis import offset_fetch

EXIT_CODE = 7
_reset = Control.reset


async def _end(*_: object) -> Any:
    os._exit(EXIT_CODE)


async def _reset_and_plant(control: Control) -> dict[str, Any]:
    patch.object(offset_fetch, "_read", _end).start()
    return await _reset(control)


if __name__ == "__main__":
    with patch.object(Control, "reset", _reset_and_plant):
        main()
