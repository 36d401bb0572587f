"""Finds the alarms of a group in the status of its members, the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from dledger.node.tally import SLOW_SYNC_S
from dledger.snapshots.snapshot_notes import snapshot_notes
from dledger.status import WARNINGS

# A member that lacks more entries than this raises an alarm: a second of a busy group.
BEHIND_ENTRIES = 10_000
# As RocketMQ's rules for disks: a warning at 85 %, critical at 95 %.
DISK_NEARLY_FULL = 0.85
DISK_FULL = 0.95

Said = Mapping[str, Any]


class Severity(IntEnum):
    CRITICAL = 0  # nothing is served, or something may be lost
    WARNING = 1  # the next failure would be critical


class Alarm(NamedTuple):
    severity: Severity
    text: str


def group_alarms(statuses: Mapping[str, Said]) -> list[Alarm]:
    """Return all alarms of a group.

    Args:
        statuses: the status of each member, as `Status.as_dict`; for a member that did not answer,
            the reason, as `problem`.
    """
    found = [
        *_leadership(statuses),
        *_reachability(statuses),
        *(alarm for name, said in statuses.items() for alarm in _member(name, said)),
        *_told(statuses),
        *_behind(statuses),
        *(Alarm(Severity.WARNING, note) for note in snapshot_notes(statuses)),
    ]
    return sorted(found, key=lambda alarm: alarm.severity)


def _told(statuses: Mapping[str, Said]) -> Iterator[Alarm]:
    """Yield the alarms that members report of themselves and of one another, each once."""
    told = {
        str(alarm.get("text")): alarm.get("kind")
        for said in statuses.values()
        for alarm in said.get("alarms") or ()
    }
    for text, kind in told.items():
        yield Alarm(Severity.WARNING if kind in WARNINGS else Severity.CRITICAL, text)


def leader_of(statuses: Mapping[str, Said]) -> tuple[str, Said] | None:
    """Return the member that leads in the newest term, and its status."""
    leaders = [(name, said) for name, said in statuses.items() if said.get("role") == "leader"]
    return max(leaders, key=lambda leader: int(leader[1].get("term", -1)), default=None)


def _voters(statuses: Mapping[str, Said]) -> list[str]:
    """Return the voters of the newest configuration that a member knows."""
    told = [said["members"] for said in statuses.values() if isinstance(said.get("members"), dict)]
    newest = max(told, key=lambda members: int(members.get("index", -1)), default=None)
    voters = newest.get("voters") if newest else None
    return [str(voter) for voter in voters] if voters else list(statuses)


def _leadership(statuses: Mapping[str, Said]) -> Iterator[Alarm]:
    voters = _voters(statuses)
    up = [name for name in voters if name in statuses and "problem" not in statuses[name]]
    quorum = len(voters) // 2 + 1
    if len(up) < quorum:
        yield Alarm(
            Severity.CRITICAL,
            f"no quorum: {len(up)} of {len(voters)} voters answer, {quorum} are needed; start the "
            "others (only if they are lost for good: `dledger recover`)",
        )
    elif leader_of(statuses) is None:
        yield Alarm(Severity.CRITICAL, "no member leads: an election runs, or cannot be won")
    elif not any(said.get("ready") for said in statuses.values()):
        yield Alarm(Severity.CRITICAL, "the leader does not serve yet")
    generations = {said["generation"] for said in statuses.values() if "generation" in said}
    if len(generations) > 1:
        yield Alarm(
            Severity.CRITICAL, "members of two generations of the group run: stop the older"
        )
    if len({said["birth"] for said in statuses.values() if said.get("birth")}) > 1:
        yield Alarm(
            Severity.CRITICAL,
            "members of groups of one name run that began separately: see `birth` in --json, and "
            "stop those of the wrong one",
        )


def _reachability(statuses: Mapping[str, Said]) -> Iterator[Alarm]:
    for name, said in statuses.items():
        if "problem" in said:
            yield Alarm(Severity.WARNING, f"{name} does not answer: {said['problem']}")


def _member(name: str, said: Said) -> Iterator[Alarm]:
    if said.get("scrub_damage"):
        yield Alarm(
            Severity.CRITICAL,
            f"{name}: the log on disk is damaged ({said['scrub_damage']}): stop it and run "
            "`dledger repair`",
        )
    if said.get("disk_short"):
        yield Alarm(Severity.CRITICAL, f"{name} takes no appends: {said['disk_short']}")
    if said.get("machine_stopped"):
        yield Alarm(Severity.CRITICAL, f"{name}: {said['machine_stopped']}")
    if said.get("not_begun"):
        yield Alarm(Severity.CRITICAL, str(said["not_begun"]))
    elif said.get("proven") is False:
        yield Alarm(Severity.WARNING, f"{name} lost its data: it does not count until it is back")
    total, free = int(said.get("disk_total_bytes", 0)), int(said.get("disk_free_bytes", 0))
    if total:
        used = 1 - free / total
        if used >= DISK_NEARLY_FULL:
            severity = Severity.CRITICAL if used >= DISK_FULL else Severity.WARNING
            yield Alarm(severity, f"{name}: its disk is {used:.0%} full")
    if (average := sync_average_s(said)) is not None and average > SLOW_SYNC_S:
        yield Alarm(
            Severity.WARNING, f"{name}: a sync to its disk takes {average * 1000:.0f} ms on average"
        )


def sync_average_s(said: Said) -> float | None:
    syncs = int(said.get("syncs", 0))
    return float(said.get("sync_seconds", 0.0)) / syncs if syncs else None


def _behind(statuses: Mapping[str, Said]) -> Iterator[Alarm]:
    leader = leader_of(statuses)
    if leader is None:
        return
    name, said = leader
    last = int(said.get("last_index", -1))
    peers = said.get("peers")
    for peer, seen in (peers if isinstance(peers, Mapping) else {}).items():
        if not isinstance(seen, Mapping):
            continue
        if not seen.get("connected"):
            why = seen.get("problem") or "no connection"
            yield Alarm(Severity.WARNING, f"{name} does not reach {peer}: {why}")
            continue
        match = seen.get("match_index")
        if isinstance(match, int) and last - match > BEHIND_ENTRIES:
            yield Alarm(Severity.WARNING, f"{peer} is {last - match} entries behind")
