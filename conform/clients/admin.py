"""Section 7: administrative requests, which go to the controller, or to the broker that they are about."""

from __future__ import annotations

from functools import partial
from typing import Any

from klamm.conform.case import Level, expect
from klamm.conform.clients.client_lab import ClientLab
from klamm.conform.clients.client_section import ClientSection
from klamm.conform.clients.judge import after, refused

SECTION = ClientSection(7, "admin", "administrative requests")
MUST, SHOULD = Level.MUST, Level.SHOULD
APIS = {
    "create-topic": "CreateTopics",
    "delete-topic": "DeleteTopics",
    "add-partitions": "CreatePartitions",
    "elect-leaders": "ElectLeaders",
}
GUIDE = "Kafka protocol guide: requests to the controller"


async def _admin(lab: ClientLab, task: str, **variables: Any) -> None:
    if task != "create-topic":
        await lab.create(replicas=[[1, 2]])
    if task == "elect-leaders":
        await lab.cluster.restart_broker(1)
        await lab.cluster.wait_for_isr(lab.topic, 0, [1, 2])
    await lab.client(task, **variables)


async def _to_controller(lab: ClientLab, task: str) -> None:
    await lab.cluster.move_controller(3)
    await _admin(lab, task)
    brokers = [each.broker for each in lab.requests(APIS[task])]
    expect(brokers and set(brokers) == {3}, f"{APIS[task]} was sent to the brokers {brokers}, the controller is 3")
    await _is_done(lab, task)


async def _is_done(lab: ClientLab, task: str) -> None:
    names = {each["name"]: each["partitions"] for each in await lab.cluster.topics()}
    if task == "delete-topic":
        expect(lab.topic not in names, "the topic is there")
    else:
        expect(names.get(lab.topic) == (3 if task == "add-partitions" else 1), "the topic is not as it should be")
    if task == "elect-leaders":
        await lab.cluster.wait_for_leader(lab.topic, 0, 1)


for index, task in enumerate(APIS, 1):
    SECTION.client(MUST, index, f"{APIS[task]} is sent to the controller.", GUIDE)(partial(_to_controller, task=task))


async def _not_controller(lab: ClientLab, task: str) -> None:
    lab.fault(api=APIS[task], error="NOT_CONTROLLER", first=1)
    await _admin(lab, task)
    failed = refused(lab.requests(APIS[task]), "NOT_CONTROLLER")
    expect(after(lab.requests("Metadata"), failed), "there is no Metadata request after NOT_CONTROLLER")
    await _is_done(lab, task)


for index, task in enumerate(list(APIS)[:3], 5):  # the Java client gives NOT_CONTROLLER of ElectLeaders to its user
    SECTION.client(SHOULD, index, f"After NOT_CONTROLLER of {APIS[task]} a client looks for the controller, and asks it.", GUIDE)(
        partial(_not_controller, task=task)
    )


@SECTION.client(MUST, 9, "DescribeConfigs of a broker is sent to this broker.", "KIP-133")
async def _(lab: ClientLab) -> None:
    await lab.client("describe-broker", BROKER=2)
    brokers = {each.broker for each in lab.requests("DescribeConfigs")}
    expect(brokers == {2}, f"DescribeConfigs of broker 2 was sent to the brokers {brokers}")


@SECTION.client(
    SHOULD, 10, "A lost response of an administrative request does not end it.", "Kafka documentation: retries of the admin client"
)
async def _(lab: ClientLab) -> None:
    lab.fault(api="DescribeConfigs", close="before", first=1)
    await lab.client("describe-broker", BROKER=2)
    expect(any(each.response for each in lab.requests("DescribeConfigs")), "the request was not sent again")


@SECTION.client(SHOULD, 11, "DeleteGroups is sent to the coordinator, again after NOT_COORDINATOR.", "KIP-229")
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("end")
    await lab.client("group")
    lab.fault(api="DeleteGroups", error="NOT_COORDINATOR", first=1)
    await lab.client("delete-group")
    expect(lab.group not in {each["group"] for each in await lab.cluster.groups()}, "the group is there")


@SECTION.client(
    SHOULD, 12, "A ListOffsets request for a time is sent again to the new leader after NOT_LEADER_OR_FOLLOWER.", "Kafka protocol guide"
)
async def _(lab: ClientLab) -> None:
    await lab.create()
    await lab.write("0", timestamp=1_600_000_000_000)
    lab.fault(api="ListOffsets", topic=lab.topic, error="NOT_LEADER_OR_FOLLOWER", first=1)
    program = await lab.client("list-offsets", TIMESTAMP=1_500_000_000_000)
    expect([each.offset for each in program.told] == [0], "the client did not find the record")


@SECTION.client(
    SHOULD, 13, "After CLUSTER_AUTHORIZATION_FAILED an administrative request is not sent again.", "Kafka protocol guide"
)
async def _(lab: ClientLab) -> None:
    lab.fault(api="CreateTopics", error="CLUSTER_AUTHORIZATION_FAILED")
    await lab.client("create-topic", may_fail=True)
    expect(len(lab.requests("CreateTopics")) == 1, f"there are {len(lab.requests('CreateTopics'))} requests of CreateTopics")
