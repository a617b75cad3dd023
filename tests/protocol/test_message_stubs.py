"""The stubs of the messages are as the schemas say, and a type checker uses them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from klamm.protocol import messages
from klamm.tests.protocol import message_stubs

ROOT = Path(__file__).resolve().parents[2]


def test_stubs_are_up_to_date() -> None:
    assert message_stubs.PATH.read_text() == message_stubs.text(), "write them: python -m klamm.tests.protocol.message_stubs --write"


def test_every_message_of_every_api_and_the_metadata_records_are_there() -> None:
    names = message_stubs.names()
    assert len(names) == 2 * len(messages.APIS) + 10
    for name in names:
        assert getattr(messages, name) is messages.message_type(name).top


@pytest.mark.slow  # mypy without a cache; `make check` reads the same stubs for all of the code
def test_misspelt_fields_structures_and_messages_are_found(tmp_path: Path) -> None:
    source = tmp_path / "misspelt.py"
    source.write_text(
        "from klamm.protocol import messages\n"
        "def handle(request: messages.CreateTopicsRequest) -> messages.CreateTopicsResponse:\n"
        "    for topic in request.topics:\n"
        "        topic.nmae\n"
        "    request._replace(timeout=1)\n"
        "    messages.CreateTopicsResponse.CreatableTopicResults\n"
        "    messages.CreateTopicResponse\n"
        "    return messages.CreateTopicsResponse(throttle_ms=1)\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", str(source)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "error:" in line and "misspelt.py" in line]
    assert [int(line.split(":")[1]) for line in lines] == [4, 5, 6, 7, 8], done.stdout + done.stderr
