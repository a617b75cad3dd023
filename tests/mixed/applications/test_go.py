"""Clients in Go, as old and as new as they can be told to be: `go/main.go`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from klamm.tests.harness.members import Members
from klamm.tests.mixed.applications.application import KINDS, running, three_brokers

FOLDER = Path(__file__).with_name("go")
ADMINISTRATED = "retention 123456789, 3 brokers"
CHANGED = f"{ADMINISTRATED}, elected true, bob true"
READ = "a consumer committed true"

pytestmark = [pytest.mark.slow, pytest.mark.reference]


@KINDS
def test_clients_in_go_write_read_copy_and_administrate(new_members: Callable[..., Members], of_klamm: int, tmp_path: Path) -> None:
    assert shutil.which("go") is not None, "this test needs Go: install it"
    members = three_brokers(new_members, of_klamm)
    command = ["env", f"BOOTSTRAP={members.bootstrap()}", "GOFLAGS=-buildvcs=false", "go", "-C", os.fspath(FOLDER), "run", "."]
    with running(command, tmp_path / "go.txt") as program:
        said = program.lines()
    assert said == [
        f"* sarama 0.10.2.0: created, true, read 80, {READ}, deleted",
        f"* sarama 1.1.0: created, true, read 80, {READ}, copied 20, {ADMINISTRATED}, deleted",
        f"* sarama 2.7.0: created, true, read 100, {READ}, copied 20, {CHANGED}, deleted",
        f"* sarama 3.9.0: created, true, read 100, {READ}, copied 20, {CHANGED}, deleted",
        f"* sarama 4.3.1: created, true, read 100, {READ}, copied 20, {CHANGED}, deleted",
        "* kafka-go: read 100, deleted",
    ]
