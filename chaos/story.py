"""A schedule told in sentences: roles instead of ids, because each run resolves them again."""

from __future__ import annotations

from klamm.chaos.kinds import Parameters
from klamm.chaos.schedule import Schedule, Step

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


OWN_LOAD = "Two producers write, a group reads, copiers copy in transactions."
PROGRAM_LOAD = "The program writes to partitions 0 and 1 of records, reads them, and reads as a member of a group."


def story(schedule: Schedule, load: str = OWN_LOAD) -> list[str]:
    """One sentence for each step, in order, after one about the cluster and the load."""
    options = schedule.options
    where = "each in a process of its own" if options.processes else "in one process"
    lines = [
        f"{options.brokers} brokers, {where}, serve the topics records and copies with 3 replicas. {load}",
    ]
    lines += [f"At {step.at_ms / 1000:.1f} s {told(step)}." for step in schedule.steps]
    lines.append(f"At {schedule.length_ms / 1000:.1f} s everything is restored, and the load ends.")
    return lines


def told(step: Step) -> str:
    """What happens in a step, and how it is undone."""
    given = step.parameters
    seconds = (step.lasts_ms or 0) / 1000
    after = f"{seconds:.1f} s later"
    who = _broker(str(given.get("broker", "")))
    match step.kind:
        case "kill":
            ends = ", and its ZooKeeper session ends at once" if given["expire"] else ""
            return f"{who} is killed{ends}; {after} it is started again"
        case "stop":
            return f"{who} is stopped in order; {after} it is started again"
        case "pause":
            return f"{who} stops to serve; {after} it goes on"
        case "cut-link":
            others = "all other brokers" if given["peers"] == "all" else f"the {_ordinal(given['rank'])} other broker"
            return f"no request passes between {who} and {others}; {after} they do again"
        case "cut-zookeeper":
            return f"{who} loses its connection to ZooKeeper; {after} it may connect again"
        case "expire":
            return f"the ZooKeeper session of {who} expires"
        case "disk-full":
            return f"one of the two disks of {who} is full; {after} it is free, and the broker is {given['ends']} and started again"
        case "crash":
            return f"the broker that reaches {given['phase']} for time {given['nth']} is to be killed there; {after} it is started again"
        case "slow-link":
            other = f"the {_ordinal(given['rank'])} other broker"
            return f"requests between {who} and {other} take {given['ms']} ms longer, for {seconds:.1f} s"
        case "slow-zookeeper":
            return f"requests of {who} to ZooKeeper wait {given['ms']} ms, for {seconds:.1f} s"
        case _:
            return _told_others(step.kind, given, who, seconds)


def _told_others(kind: str, given: Parameters, who: str, seconds: float) -> str:
    match kind:
        case "lossy":
            return f"connections close {given['close']} {given['probability']:.0%} of the responses of {given['api']}, for {seconds:.1f} s"
        case "controller":
            return "the controller resigns" if given["to"] is None else f"{_broker(given['to'])} becomes controller"
        case "expire-offset":
            return "a committed offset of a group of its own expires while a transaction holds another one, which then is committed"
        case "unclean-cut":
            return (
                "a topic of its own has an unclean election; the replicas that are left are cut off from each other, one more record is "
                "written, and their leader is killed"
            )
        case "elect":
            return "preferred leaders are elected"
        case "reassign":
            moves = ", ".join(f"partition {p} to {replicas}" for p, replicas in given["targets"].items())
            slow = "" if given["throttle"] is None else f", with a throttle of {given['throttle']:,} bytes/s"
            return f"replicas of {given['topic']} are told to move: {moves}{slow}"
        case "cancel":
            return "all reassignments are cancelled"
        case "topic-config":
            return f"topic {given['topic']} gets {given['name']}={given['value']}"
        case "broker-config":
            return f"{who} gets {given['name']}={given['value']}"
        case "topic":
            return f"a topic with {given['partitions']} partitions is created; {seconds:.1f} s later it is deleted"
        case "rebalance":
            return f"group {given['group']} rebalances"
        case "expire-members":
            return f"the sessions of all members of group {given['group']} time out"
        case "member":
            return f"one more member joins group {given['group']}; {seconds:.1f} s later it leaves"
    raise ValueError(f"there is no story of {kind}")


def _broker(role: str) -> str:
    what, _, rest = role.partition(" ")
    match what:
        case "leader":
            return f"the leader of records-{rest}"
        case "coordinator":
            return f"the coordinator {rest}"
        case "broker":
            return f"the {_ordinal(int(rest))} running broker"
        case _:
            return f"the {role}"


def _ordinal(rank: int) -> str:
    return ORDINALS[rank] if rank < len(ORDINALS) else f"{rank + 1}th"
