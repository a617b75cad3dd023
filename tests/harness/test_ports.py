"""Ports of several test runs on one machine."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys

from klamm.tests.harness import ports
from klamm.tests.harness.ports import ALL, BLOCK, Ports

MANY = 3 * BLOCK


def test_a_port_is_given_out_once_and_can_be_bound() -> None:
    found = [ports.free_port() for _ in range(MANY)]
    assert len(set(found)) == MANY
    for port in found[:5]:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_several_ports_follow_each_other() -> None:
    found = ports.free_ports(5)
    assert [later - earlier for earlier, later in itertools.pairwise(found)] == [1] * 4


def test_a_port_that_somebody_has_is_left_out() -> None:
    one = Ports()
    (first,) = one.take()
    with socket.create_server(("127.0.0.1", first + 1)):
        assert one.take() == [first + 2]


def test_runs_side_by_side_never_get_the_same_port() -> None:
    """Each tries the same blocks in the same order, the worst of all cases."""
    first = Ports(ALL)
    taken = set(itertools.chain.from_iterable(first.take() for _ in range(MANY)))
    script = (
        f"from klamm.tests.harness.ports import ALL, Ports; one, two = Ports(ALL), Ports(ALL); print(*one.take({BLOCK - 2}), *two.take())"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    other = {int(word) for word in said.split()}
    assert len(other) == BLOCK - 1
    assert not taken & other
