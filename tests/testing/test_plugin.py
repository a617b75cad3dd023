"""The plugin of pytest, in runs of pytest of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from klamm.testing.per_test import Clusters
from klamm.tests.harness.pytest_plugin import plugin_arguments

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(240)  # each run starts Python, ZooKeeper and brokers

CLIENTS = """
import pytest
from kafka import KafkaProducer

def send(klamm, topic):
    with KafkaProducer(bootstrap_servers=klamm.bootstrap_servers, client_id="shop") as producer:
        producer.send(topic, b"x").get(10)

def commit(klamm):
    from confluent_kafka import Producer
    name = klamm.create_topic(klamm.topic_name("copy"))
    producer = Producer({"bootstrap.servers": klamm.bootstrap_servers, "client.id": name, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(name, b"x")
    producer.commit_transaction(10)

@pytest.fixture
def orders(klamm):
    return klamm.create_topic(klamm.topic_name("orders"))

def test_passes_and_leaves_a_mess(klamm, orders, klamm_cluster):
    assert klamm_cluster.bootstrap_servers == klamm.bootstrap_servers
    klamm.fault(api="Produce", topic=orders, error="NOT_LEADER_OR_FOLLOWER", first=1)
    send(klamm, orders)
    klamm.fault(api="Fetch", drop=True, may_miss=True)
    klamm.kill_broker(2)
    klamm.freeze_clock()
    klamm.hold("FailoverBegun", may_miss=True)

def test_finds_a_whole_cluster(klamm):
    assert len(klamm.addresses) == 3
    assert klamm.requests() == klamm.faults == klamm.holds == []
    assert "fault" not in klamm.describe() and "hold" not in klamm.describe() and "frozen" not in klamm.describe()

def test_has_names_of_its_own(klamm):
    assert klamm.topic_name("a") == klamm.topic_name("a") != klamm.topic_name("b")
    assert klamm.topic_name("orders") not in klamm.describe()

def test_fails_and_is_explained(klamm, orders):
    klamm.fault(api="Produce", topic=orders, error="KAFKA_STORAGE_ERROR", first=1)
    klamm.stop_broker(3)
    send(klamm, orders)
    assert klamm.requests(api="Produce") == []

def test_has_a_fault_that_never_hits(klamm):
    klamm.fault(api="Produce", client_id="nobody", drop=True)

def test_has_links_and_a_disk_that_nothing_meets(klamm):
    klamm.cut_link(1, 2)
    klamm.slow_link(3, 2, 1)
    klamm.fault(slow_disk_ms=1, topic="nothing")

def test_has_a_typo(klamm):
    klamm.fault(api="Produse", drop=True)

def test_waits_in_vain(klamm):
    klamm.wait_for_leader("nothing", 0, timeout_s=0)

def test_has_a_hold_that_is_never_reached(klamm):
    with klamm.hold("FailoverDone", nth=2):
        pass

@pytest.mark.xfail(strict=True)
def test_is_expected_to_fail(klamm):
    klamm.fault(api="Produce", client_id="nobody", drop=True)
    assert False

@pytest.mark.klamm(brokers=1, config={"num.partitions": 7}, topics=["seen:2:1"], version="2.1")
class TestOwn:
    def test_has_a_cluster_of_its_own(self, klamm):
        assert len(klamm.addresses) == 1 and "topic seen: 2 partitions" in klamm.describe()

    @pytest.mark.klamm(brokers=2)
    def test_overrides_the_marker_of_its_class(self, klamm):
        assert len(klamm.addresses) == 2

@pytest.mark.klamm(brokers=2, broker_config={2: {"broker.rack": "b", "num.io.threads": 3}})
def test_has_brokers_with_configs_of_their_own(klamm):
    from klamm.admin import AdminClient
    with AdminClient(klamm.bootstrap_servers) as admin:
        assert [each.rack for each in admin.describe_cluster().brokers] == [None, "b"]

@pytest.mark.klamm(brokers=1, sasl="PLAIN", users={"eve": "e"}, acls=True, as_version="3.4")
def test_has_users_and_acls(klamm):
    from confluent_kafka import Producer
    security = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "eve", "sasl.password": "e"}
    producer = Producer({"bootstrap.servers": klamm.bootstrap_servers} | security)
    told = []
    producer.produce(klamm.create_topic("orders"), b"x", on_delivery=lambda error, _: told.append(error.name()))
    producer.flush(10)
    assert told == ["TOPIC_AUTHORIZATION_FAILED"]

@pytest.mark.klamm(brokers=1, processes=True)
def test_has_brokers_in_processes_of_their_own(klamm):
    import subprocess
    assert "klamm.cli.serving.owned_broker" in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    topic = klamm.create_topic("orders")
    send(klamm, topic)
    assert [request.api for request in klamm.requests(api="Produce")] == ["Produce"]

@pytest.mark.asyncio
async def test_waits_in_a_thread_while_its_loop_goes_on(klamm, orders):
    import asyncio
    from aiokafka import AIOKafkaProducer
    fault = klamm.fault(api="Produce", topic=orders, close="before", first=1)
    async with AIOKafkaProducer(bootstrap_servers=klamm.bootstrap_servers) as producer:
        sending = asyncio.ensure_future(producer.send_and_wait(orders, b"x"))
        await asyncio.to_thread(klamm.wait_for_requests, 2, api="Produce", topic=orders)
        assert (await sending).offset == 0 and fault.hits == 1

@pytest.mark.asyncio
async def test_has_a_fault_that_never_hits_on_a_loop(klamm):
    klamm.fault(api="Produce", client_id="nobody-on-a-loop", drop=True)

import unittest

class TestOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def cluster(self, klamm):
        self.klamm = klamm

    def test_can_use_it(self):
        assert self.klamm.controller_id > 0

    def test_misses(self):
        self.klamm.hold("FailoverDone")

def test_is_broken_in_the_fixture(klamm, no_such_fixture):
    pass

def test_kills_every_broker(klamm):
    for broker in (1, 2, 3):
        klamm.kill_broker(broker)

def test_comes_after_that(klamm, orders):
    send(klamm, orders)

def test_kills_two_brokers(klamm):
    commit(klamm)
    klamm.kill_broker(1)
    klamm.kill_broker(2)

def test_finds_coordinators_that_are_loaded(klamm):
    commit(klamm)
    assert klamm.requests(client_id=klamm.topic_name("copy"), error="any") == []

def test_has_other_configs_and_a_quota(klamm):
    from klamm.admin import AdminClient, ResourceType
    with AdminClient(klamm.bootstrap_servers) as admin:
        admin.incremental_alter_configs({(ResourceType.BROKER, ""): {"message.max.bytes": "100"}}).all()
    klamm.wait_for_configs()

def test_has_the_first_configs(klamm, orders):
    with KafkaProducer(bootstrap_servers=klamm.bootstrap_servers) as producer:
        producer.send(orders, b"x" * 500).get(10)

def test_adds_a_broker(klamm):
    assert klamm.add_broker() == 4

def test_has_three_brokers(klamm):
    assert len(klamm.brokers()) == 3

def test_leaves_a_cluster_that_cannot_be_restored(klamm):
    klamm.restore = lambda: 1 / 0

def test_gets_another_cluster(klamm, klamm_cluster, orders):
    assert klamm.bootstrap_servers != klamm_cluster.bootstrap_servers
    send(klamm, orders)
"""

MARKERS = """
import pytest

@pytest.mark.klamm(broker=1)
def test_unknown(klamm): ...

@pytest.mark.klamm(1)
def test_positional(klamm): ...

@pytest.mark.klamm(brokers=0)
def test_none(klamm): ...

@pytest.mark.klamm(brokers=True)
def test_boolean(klamm): ...

@pytest.mark.klamm(config={"broker.id": 2})
def test_own_property(klamm): ...

@pytest.mark.klamm(config={"num.partitions": "many"})
def test_value(klamm): ...

@pytest.mark.klamm(config="a=b")
def test_text(klamm): ...

@pytest.mark.klamm(broker_config={9: {"broker.rack": "b"}})
def test_broker(klamm): ...

@pytest.mark.klamm(broker_config={2: "broker.rack=b"})
def test_broker_text(klamm): ...

@pytest.mark.klamm(topics=["a:b"])
def test_topics(klamm): ...

@pytest.mark.klamm(version="9.9")
def test_version(klamm): ...

@pytest.mark.klamm(own=False, brokers=2)
def test_both(klamm): ...
"""

PARALLEL = """
import os, pytest

@pytest.mark.parametrize("number", range(4))
def test_of_a_worker(klamm, number):
    klamm.create_topic(klamm.topic_name("orders"))
    with open(f"seen-{number}", "w") as file:
        file.write(f"{os.environ['PYTEST_XDIST_WORKER']} {klamm.bootstrap_servers}")
    assert number != 3
"""


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(text)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore", *plugin_arguments(), *arguments)


def test_tests_share_a_cluster_that_is_whole_again_and_failures_are_explained(pytester: pytest.Pytester) -> None:
    result = run(pytester, CLIENTS, "--strict-markers", "-rA")
    result.assert_outcomes(passed=21, failed=7, errors=2, xfailed=1)
    text = result.stdout.str()
    failed = text[text.index("_ test_fails_and_is_explained _") : text.index("_ test_has_a_fault_that_never_hits _")]
    lines = [line.strip() for line in failed[failed.index("- klamm -") :].splitlines()]
    begins = [index for index, line in enumerate(lines) if line.startswith("requests of clients and events (*) during the test")]
    assert len(begins) == 1
    marked = [line for line in lines[begins[0] + 1 :] if line.startswith(">")]
    assert len(marked) == 1
    shown = [line.split(" s  ", 1)[1] for line in lines if " s  " in line]
    stopped = next(index for index, line in enumerate(shown) if "broker 3: stopped" in line)
    produced = [index for index, line in enumerate(shown) if "Produce v9  shop  orders-" in line]
    assert shown[produced[0]].endswith("KAFKA_STORAGE_ERROR")
    assert shown[produced[-1]].endswith("ok")
    assert stopped < produced[0]
    assert any(line.endswith("error=KAFKA_STORAGE_ERROR, first=1: 1 hits of 1 matching requests") for line in lines)
    assert "broker 3: stopped" in lines[lines.index("the cluster now:") :]
    for name, line in (("test_has_a_typo", "did you mean Produce?"), ("test_waits_in_vain", "not within 0 s: a leader of nothing-0")):
        report = text[text.index(f"_ {name} _") :].partition("- klamm -")[0].splitlines()
        assert any(line in each for each in report)
        assert not [each for each in report if each.startswith(("testing/", "control/", "server/")) or "/concurrent/" in each], name
        assert len(report) < 20, name
    assert "client_id=nobody, drop: 0 hits of 0 matching requests: it never hit (may_miss=True allows that)" in text
    assert "hold of FailoverDone: released, reached 0 times, 0 of 1 passed: it was never reached (may_miss=True allows that)" in text


def test_wrong_arguments_of_the_marker_are_one_line_at_the_test(pytester: pytest.Pytester) -> None:
    result = run(pytester, MARKERS)
    result.assert_outcomes(errors=12)
    text = result.stdout.str()
    for line in (
        "@pytest.mark.klamm has no argument 'broker'; it has brokers, topics, config, broker_config, host, port, metrics_port, "
        "data_dir, topic_policy, alter_config_policy, as_version, api_versions, seams, control_port, processes, tls, sasl, acls, users, "
        "version, own",
        "@pytest.mark.klamm takes named arguments: brokers, topics, config, broker_config, host, port, metrics_port, "
        "data_dir, topic_policy, alter_config_policy, as_version, api_versions, seams, control_port, processes, tls, sasl, acls, users, "
        "version, own",
        "brokers: 0 is not in the range 1 to 100",
        "@pytest.mark.klamm: brokers=True has a wrong type",
        "broker_config: there is no broker 9; the cluster has 1 to 3",
        "@pytest.mark.klamm: broker_config={2: 'broker.rack=b'} is not broker id → properties",
        "config broker.id: is different for each broker and is set by the other options",
        "@pytest.mark.klamm: config='a=b' has a wrong type",
        "@pytest.mark.klamm: own=False is the shared cluster, which takes no other arguments",
    ):
        assert f"\n{line}\n" in text
    assert "Traceback" not in text
    assert "per_test.py" not in text


@pytest.mark.slow
def test_each_worker_has_its_own_cluster_and_journal(pytester: pytest.Pytester) -> None:
    result = run(pytester, PARALLEL, "-n", "2", "--klamm-brokers", "1", "--klamm-journal", "lake")
    result.assert_outcomes(passed=3, failed=1)
    seen = {path.read_text() for path in pytester.path.glob("seen-*")}
    assert len(seen) == 2
    assert all("," not in each for each in seen)
    assert {path.name for path in (pytester.path / "lake").iterdir()} == {"gw0", "gw1"}
    assert list((pytester.path / "lake" / "gw0" / "shared" / "journal").glob("run=*"))
    assert "the cluster now:" in result.stdout.str()


@pytest.mark.slow
def test_a_test_that_fails_has_the_verdict_on_its_journal_and_a_page_about_it(pytester: pytest.Pytester) -> None:
    text = """
import socket
import pytest

@pytest.mark.klamm(brokers=1)
def test_fails(klamm):
    request = b"\\0\\x12\\0\\0\\0\\0\\0\\7\\0\\1c"
    host, port = klamm.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as connection:
        for _ in range(2):
            connection.sendall(len(request).to_bytes(4, "big") + request)
            connection.recv(1)
    assert False
"""
    result = run(pytester, text, "--klamm-journal", "lake", "--klamm-verdicts", "--klamm-report")
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    (page,) = (pytester.path / "lake").glob("*.html")
    assert f"\n{page}\n" in shown
    assert "A client uses no correlation id twice" in page.read_text()
    assert "klamm verdicts" in shown
    assert "W-10 warn: A client uses no correlation id twice" in shown
    assert "request in" in shown.partition("W-10 warn")[2]
    assert " rules exercised, 0 errors, 1 warnings" in shown
    result = run(pytester, "def test_fails(klamm): assert False", "--klamm-verdicts", "--klamm-brokers", "1")
    assert "there is no journal: --klamm-journal DIR" in result.stdout.str()


def test_pages_of_tests_whose_names_differ_in_signs_only_are_different_files() -> None:
    clusters = Clusters(1, [])
    names = ["test_x.py::test[-1]", "test_x.py::test[1]", "test_x.py::test[1]-2", "test_x.py::" + "a" * 90, "test_x.py::" + "a" * 91]
    pages = [clusters.page_name(name) for name in names]
    assert len(set(pages)) == len(names)
    assert pages[0] == "test_x-py-test-1" and [clusters.page_name(name) for name in names] == pages


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--klamm-brokers", "0"], "--klamm-brokers: '0' is not from 1 to 100"),
        pytest.param(["--klamm-brokers", "x"], "argument --klamm-brokers: invalid int value: 'x'", marks=pytest.mark.slow),
        pytest.param(["-o", "klamm_brokers=many"], "klamm_brokers: 'many' is not from 1 to 100", marks=pytest.mark.slow),
        (["-o", "klamm_config=some text"], "klamm_config: 'some text' is not name=value"),
        pytest.param(["-o", "klamm_config=log.dirs.x=1\nnum.partitions=a"], "num.partitions", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_option_is_named(pytester: pytest.Pytester, arguments: list[str], text: str) -> None:
    result = run(pytester, "def test_one(klamm): ...", *arguments)
    assert result.ret != 0
    assert text in result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_options_in_the_ini_file_count(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nklamm_brokers = 2\nklamm_config =\n    num.partitions=5\n    min.insync.replicas=2\n")
    text = """
from klamm.admin import AdminClient, ResourceType

def test_one(klamm):
    with AdminClient(klamm.bootstrap_servers) as admin:
        entries = admin.describe_configs([(ResourceType.BROKER, "1")])[(ResourceType.BROKER, "1")]
    found = {name: entry.value for name, entry in entries.items()}
    assert (len(klamm.addresses), found["num.partitions"], found["min.insync.replicas"]) == (2, "5", "2")
"""
    run(pytester, text).assert_outcomes(passed=1)


def test_the_plugin_imports_no_cluster_until_one_is_used() -> None:
    script = (
        "import json, sys, klamm.testing.plugin;"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] in ('klamm', 'kafka', 'kazoo', 'uvloop', 'msgspec')]))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == ["klamm", "klamm.testing", "klamm.testing.plugin"]
