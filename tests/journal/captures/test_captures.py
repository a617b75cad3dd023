"""Captures become journals: all link types, packets that come twice, in another order or not at all, and connections begun before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import dpkt
import pytest
from click.testing import CliRunner

import klamm
from klamm.cli.journal.export import command as export_command
from klamm.cli.journal.import_capture import command as import_command
from klamm.configs.tables.public_configs import public_configs
from klamm.journal.captures.importing import Broker, Imported, import_capture
from klamm.journal.captures.packets import BadCapture
from klamm.journal.columns import Flag
from klamm.pipeline.quick.check import check_quickly
from klamm.protocol import messages
from klamm.protocol.apis import ApiKey
from klamm.tests.cli.running import call
from klamm.tests.journal.captures.packets_on_lo import BROKER, LINKS, Connection, Packet, captured, write_pcap
from klamm.tests.journal.cluster_rows import gaps, rows
from klamm.tests.proxy.clusters import BY_LIBRDKAFKA, SECRET, asked, response, write_and_read

Metadata = messages.MetadataResponse
NO_GAPS = {7: 1}
"""The number before the first row stands for what came before the capture."""


def exchange(number: int, topics: int = 30) -> tuple[bytes, bytes]:
    """A Metadata request and its response."""
    names = [messages.MetadataRequest.MetadataRequestTopic(name=f"topic-{each}") for each in range(topics)]
    request = asked(ApiKey.METADATA, 9, number, messages.MetadataRequest(topics=names))
    found = [Metadata.MetadataResponseTopic(name=f"topic-{each}") for each in range(topics)]
    return request, response(request, Metadata(brokers=[Metadata.MetadataResponseBroker(7, *BROKER)], topics=found))


def conversation(count: int = 8, handshake: bool = True, skip: int = 0) -> tuple[list[Packet], list[bytes]]:
    """The packets of a connection with this number of exchanges, and its frames."""
    connection, frames = Connection(handshake=handshake), []
    for number in range(count):
        request, answer = exchange(number)
        connection.says(True, request)
        connection.says(False, answer)
        frames += [request, answer]
    connection.ends()
    return connection.packets[skip:], frames


def made(
    tmp_path: Path, packets: list[Packet], link: str = "ethernet", node: int | None = None, run: str = "one", lake: Path | None = None
) -> Imported:
    kind, wrap = LINKS[link]
    file = write_pcap(tmp_path / "one.pcap", [(at, wrap(data)) for at, data in packets], kind)
    return import_capture(file, [Broker(node, *BROKER)], lake or tmp_path / "lake", run, public_configs())


def journaled(tmp_path: Path) -> list[bytes]:
    return [row["frame"] for row in sorted(rows(tmp_path / "lake", "frames"), key=lambda row: row["seq"])]


@pytest.mark.parametrize("link", LINKS)
def test_a_capture_of_each_link_type_becomes_the_same_journal(tmp_path: Path, link: str) -> None:
    packets, frames = conversation()
    imported = made(tmp_path, packets, link)
    assert journaled(tmp_path) == frames and gaps(tmp_path / "lake") == NO_GAPS
    assert (imported.brokers, imported.guessed, imported.connections, imported.midway, imported.gaps) == ([7], [], 1, 0, 0)
    stamps = [row["ts_ns"] for row in rows(tmp_path / "lake", "frames")]
    assert all(abs(at - 1_700_000_000_000_000_000) < 1_000_000_000 for at in stamps) and stamps == sorted(stamps)


@pytest.mark.parametrize("seed", range(6))
def test_packets_that_come_twice_late_and_in_pieces_make_the_same_journal(tmp_path: Path, seed: int) -> None:
    packets, frames = conversation()
    choices = random.Random(seed)
    order = sorted(range(len(packets)), key=lambda number: number + choices.random() * 6 * (number > 2 and number < len(packets) - 9))
    shuffled = [packets[number] for number in order]
    for _ in range(20):
        copy = choices.randrange(3, len(packets) - 3)
        at = choices.randrange(order.index(copy) + 1, len(shuffled) + 1) if copy in order else 3
        shuffled.insert(min(at, len(shuffled) - 9), packets[copy])
    begun = packets[0][0]
    imported = made(tmp_path, [(begun + number / 1000, data) for number, (_, data) in enumerate(shuffled)])
    assert journaled(tmp_path) == frames and imported.gaps == 0 and gaps(tmp_path / "lake") == NO_GAPS


def test_the_end_of_a_connection_may_come_before_what_was_said_last_and_its_beginning_twice(tmp_path: Path) -> None:
    packets, frames = conversation()
    for name, order in {
        "ends first": [*packets[:-4], *packets[-2:], *packets[-4:-2]],
        "beginning again": [*packets[:9], packets[0], packets[1], *packets[9:]],
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        imported = made(folder, [(1_700_000_000 + number / 1000, data) for number, (_, data) in enumerate(order)])
        assert journaled(folder) == frames and gaps(folder / "lake") == NO_GAPS
        assert (imported.connections, imported.midway, imported.gaps) == (1, 0, 0)


def test_a_port_that_is_used_again_is_another_connection_also_if_the_one_before_lacks_packets(tmp_path: Path) -> None:
    """The second begins after the first has ended, with the same or another number; the third after packets were waited for in vain."""
    packets, frames = conversation(2)
    lacking = [*packets[:-3], *packets[-2:]]
    moved = [packet for begun in (0, 0.5, 9) for packet in [(at + begun, data) for at, data in lacking]]
    imported = made(tmp_path, moved, node=7)
    assert (imported.connections, imported.midway, imported.gaps) == (3, 0, 3)
    assert Counter(row["conn_id"] for row in rows(tmp_path / "lake", "frames")).most_common() == [(each, len(frames)) for each in (1, 2, 3)]


def test_a_lost_packet_is_a_gap_and_no_frame_is_made_of_what_follows(tmp_path: Path) -> None:
    """Each packet of some exchanges is lost once; the rules say nothing against the runs."""
    packets, frames = conversation()
    for lost in range(2, 33):
        folder = tmp_path / str(lost)
        folder.mkdir()
        imported = made(folder, packets[:lost] + packets[lost + 1 :], node=7, run=f"lost-{lost}", lake=tmp_path / "lake")
        assert imported.gaps == 1, lost
    of_runs = Counter(row["run_id"] for row in rows(tmp_path / "lake", "frames"))
    assert len(of_runs) == 31 and min(of_runs.values()) >= len(frames) - 2
    for row in rows(tmp_path / "lake", "frames"):
        whole = next(frame for frame in frames if frame[:12] == row["frame"][:12])
        assert row["frame"] == whole if not row["flags"] & Flag.CUT else whole.startswith(row["frame"])
        assert not row["flags"] & Flag.UNMATCHED
    checked = check_quickly(tmp_path / "lake")
    assert checked.violations() == 0, [(verdict.rule, verdict.detail) for verdict in checked.judgement.verdicts]


def test_a_capture_that_begins_in_the_middle_has_what_follows_from_the_next_request_on(tmp_path: Path) -> None:
    for skip in range(1, 30):
        packets, frames = conversation(skip=skip)
        folder = tmp_path / str(skip)
        folder.mkdir()
        imported = made(folder, packets, node=7, run=f"from-{skip}", lake=tmp_path / "lake")
        found = [row for row in rows(tmp_path / "lake", "frames") if row["run_id"] == f"from-{skip}"]
        assert imported.midway == (skip > 1) and not any(row["flags"] for row in found)
        shown = [row["frame"] for row in sorted(found, key=lambda row: row["seq"])]
        assert shown == frames[-len(found) :] and len(found) >= len(frames) - 6
    checked = check_quickly(tmp_path / "lake")
    assert checked.violations() == 0, [(verdict.rule, verdict.detail) for verdict in checked.judgement.verdicts]


def test_the_id_of_a_broker_is_found_in_the_middle_of_a_connection_and_after_a_gap(tmp_path: Path) -> None:
    packets, _ = conversation(4)
    for name, some in {"middle": packets[3:], "gap": [*packets[:12], *packets[13:]]}.items():
        (tmp_path / name).mkdir()
        imported = made(tmp_path / name, some)
        assert (imported.brokers, imported.guessed, imported.gaps) == ([7], [], int(name == "gap"))


def test_packets_that_were_cut_by_the_capture_are_frames_that_are_cut(tmp_path: Path) -> None:
    packets, frames = conversation()
    imported = made(tmp_path, [(at, data[:90]) for at, data in packets])
    found = journaled(tmp_path)
    assert imported.gaps and all(whole.startswith(each) for whole, each in zip(frames, found, strict=True))
    assert all(row["flags"] == Flag.CUT for row in rows(tmp_path / "lake", "frames"))


def test_passwords_in_a_capture_are_masked_and_tls_is_counted(tmp_path: Path) -> None:
    connection = Connection()
    for key, version, message, answer in (
        (ApiKey.SASL_HANDSHAKE, 1, messages.SaslHandshakeRequest(mechanism="PLAIN"), messages.SaslHandshakeResponse(mechanisms=["PLAIN"])),
        (ApiKey.SASL_AUTHENTICATE, 2, messages.SaslAuthenticateRequest(auth_bytes=SECRET), messages.SaslAuthenticateResponse()),
    ):
        request = asked(key, version, 1, message)
        connection.says(True, request)
        connection.says(False, response(request, answer))
    for frame in exchange(3, 9000):
        connection.says(frame[4:6] == b"\0\3", frame)
    secured = Connection(at=1_700_000_100.0)
    secured.says(True, b"\x16\x03\x01\x02\x00" + bytes(512))
    imported = made(tmp_path, connection.packets + secured.packets)
    assert imported.unread == {"TLS": 1} and imported.connections == 2
    found = rows(tmp_path / "lake", "frames")
    assert len(found) == 6 and not any(b"password" in row["frame"] for row in found)
    assert [row["frame"] for row in found][-2:] == list(exchange(3, 9000))


def test_what_is_no_capture_and_brokers_that_are_not_in_it_are_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.pcap"
    other.write_text("not a capture")
    with pytest.raises(BadCapture, match="neither pcap nor pcapng"):
        import_capture(other, [Broker(1, *BROKER)], tmp_path / "lake", "one", public_configs())
    file = write_pcap(tmp_path / "one.pcap", conversation()[0], 101)
    with pytest.raises(BadCapture, match=r"no connection to 127.0.0.1:1; it has connections of 127.0.0.1:\d+"):
        import_capture(file, [Broker(1, "127.0.0.1", 1)], tmp_path / "lake", "one", public_configs())
    torn = tmp_path / "torn.pcap"
    torn.write_bytes(file.read_bytes()[:-7])
    assert import_capture(torn, [Broker(None, *BROKER)], tmp_path / "lake", "torn", public_configs()).brokers == [7]


def test_a_journal_becomes_a_capture_and_again_the_same_journal(tmp_path: Path) -> None:
    packets, frames = conversation()
    made(tmp_path, [(at, data[:900]) for at, data in packets])
    capture = tmp_path / "again.pcapng"
    done = CliRunner().invoke(export_command, [str(tmp_path / "lake"), "--pcapng", "-o", str(capture)])
    assert done.output == f"{capture}: {len(frames)} frames\n"
    done = CliRunner().invoke(import_command, [str(capture), str(tmp_path / "second"), "--broker", "7=10.0.0.7:9092"])
    assert done.exit_code == 0 and "1 connection of brokers 7" in done.output, done.output

    def shown(lake: Path) -> list[Any]:
        return [tuple(row[name] for name in ("frame", "api_key", "dir", "peer", "flags")) for row in rows(lake, "frames")]

    assert shown(tmp_path / "second") == shown(tmp_path / "lake")


def test_the_frames_of_violations_are_a_capture_with_the_violations_as_comments(tmp_path: Path) -> None:
    """A response to a request that nobody sent."""
    connection = Connection()
    request, answer = exchange(1)
    connection.says(True, request)
    connection.says(False, answer)
    connection.says(False, answer)
    connection.ends()
    made(tmp_path, connection.packets)
    capture = tmp_path / "evidence.pcapng"
    done = CliRunner().invoke(export_command, [str(tmp_path / "lake"), "--pcapng", "--violations", "-o", str(capture)])
    assert done.exit_code == 0, done.output
    with capture.open("rb") as file:
        packets = [data for _, data in dpkt.pcapng.Reader(file)]
    assert any(bytes(dpkt.ip.IP(data).data.data) == answer for data in packets)
    assert b"W-" in capture.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["export", "LAKE", "--pcapng"], "--format pcapng needs a file: -o FILE"),
        (["export", "LAKE", "--violations"], "--violations is for --format pcapng"),
        (["import", __file__, "LAKE", "--broker", "kafka"], "'kafka' is not [ID=]HOST:PORT"),
        (["import", __file__, "LAKE", "--broker", "kafka:9092"], "the address of kafka is not known: "),
        (["import", __file__, "LAKE", "--broker", "127.0.0.1:9092"], "neither pcap nor pcapng"),
    ],
)
def test_what_the_commands_cannot_do_is_one_line(tmp_path: Path, arguments: list[str], text: str) -> None:
    made(tmp_path, conversation()[0])
    done = call("journal", *(tmp_path / "lake" if each == "LAKE" else each for each in arguments))
    assert done.returncode != 0 and text in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.slow  # who is not root cannot capture
def test_a_capture_beside_our_own_journal_has_the_same_frames_and_verdicts(zookeeper: str, chroot: str, tmp_path: Path) -> None:
    """The loopback interface is captured while clients of librdkafka work through a proxy that keeps a journal."""
    with klamm.Cluster(2, zookeeper=zookeeper + chroot, topics=["t:3:1"], config={"group.initial.rebalance.delay.ms": 0}) as cluster:
        ports = [port for _, _, port in cluster.addresses]
        with klamm.Proxy(cluster.bootstrap_servers, journal=tmp_path / "own", run="one") as proxy:
            with captured(ports) as packets:
                write_and_read(proxy.bootstrap_servers)
    file = write_pcap(tmp_path / "lo.pcap", packets)
    own = {(row["node_id"], row["frame"]) for row in rows(tmp_path / "own", "frames")}
    import_capture(file, [Broker(None, "127.0.0.1", port) for port in ports], tmp_path / "lake", "one", public_configs())
    imported = rows(tmp_path / "lake", "frames")
    of_clients = {(row["node_id"], row["frame"]) for row in imported if row["node_id"] in (1, 2)}
    assert own - of_clients == set()
    told = [check_quickly(tmp_path / lake) for lake in ("own", "lake")]
    verdicts = [Counter(verdict.rule for verdict in each.judgement.verdicts) for each in told]
    assert verdicts[0] == verdicts[1] and verdicts[0].keys() <= BY_LIBRDKAFKA
