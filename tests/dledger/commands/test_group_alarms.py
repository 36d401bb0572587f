"""What `dledger status` says first: what is wrong, the worst before the rest."""

from __future__ import annotations

from typing import Any

import pytest

from dledger.commands.group_alarms import BEHIND_ENTRIES, Severity, group_alarms

VOTERS = ["n0", "n1", "n2"]


def member(name: str, **said: Any) -> dict[str, Any]:
    return {
        "node_id": name,
        "role": "follower",
        "ready": False,
        "proven": True,
        "term": 3,
        "last_index": 50_000,
        "scrub_damage": None,
        "peers": {},
        "members": {"index": -1, "voters": VOTERS},
        "generation": 0,
        "syncs": 10,
        "sync_seconds": 0.01,
        "disk_total_bytes": 100,
        "disk_free_bytes": 60,
        **said,
    }


def peer(**seen: Any) -> dict[str, Any]:
    return {"connected": True, "problem": None, "match_index": 50_000, **seen}


def healthy(**peers: dict[str, Any]) -> dict[str, dict[str, Any]]:
    seen = {"n1": peer(), "n2": peer(), **peers}
    leader = member("n0", role="leader", ready=True, peers=seen)
    return {"n0": leader, "n1": member("n1"), "n2": member("n2")}


def texts(statuses: dict[str, dict[str, Any]]) -> list[str]:
    return [alarm.text for alarm in group_alarms(statuses)]


def test_a_healthy_group_raises_no_alarm() -> None:
    assert group_alarms(healthy()) == []


def test_a_lost_quorum_comes_first() -> None:
    down = {"problem": "connection refused"}
    alarms = group_alarms({"n0": member("n0"), "n1": down, "n2": down})
    assert alarms[0].severity is Severity.CRITICAL
    assert "no quorum: 1 of 3 voters answer, 2 are needed" in alarms[0].text
    assert [alarm.text for alarm in alarms[1:]] == [
        "n1 does not answer: connection refused",
        "n2 does not answer: connection refused",
    ]


def test_learners_are_not_counted_toward_the_quorum() -> None:
    statuses = healthy()
    statuses["n1"] = statuses["n2"] = {"problem": "down"}
    statuses |= {"n3": member("n3", role="learner"), "n4": member("n4", role="learner")}
    assert "no quorum" in texts(statuses)[0]


@pytest.mark.parametrize(
    ("name", "said", "text", "severity"),
    [
        ("n1", {"scrub_damage": "byte 7"}, "damaged (byte 7)", Severity.CRITICAL),
        ("n1", {"disk_free_bytes": 2}, "98% full", Severity.CRITICAL),
        ("n1", {"disk_free_bytes": 12}, "88% full", Severity.WARNING),
        ("n1", {"proven": False}, "n1 lost its data", Severity.WARNING),
        ("n1", {"sync_seconds": 5.0}, "500 ms", Severity.WARNING),
        ("n1", {"generation": 1}, "two generations", Severity.CRITICAL),
        ("n0", {"ready": False}, "does not serve yet", Severity.CRITICAL),
        ("n0", {"role": "candidate", "ready": False}, "no member leads", Severity.CRITICAL),
    ],
)
def test_each_thing_that_is_wrong_raises_one_alarm(
    name: str, said: dict[str, Any], text: str, severity: Severity
) -> None:
    statuses = healthy()
    statuses[name] |= said
    (alarm,) = group_alarms(statuses)
    assert text in alarm.text
    assert alarm.severity is severity


def test_a_member_that_waits_to_begin_its_group_says_for_whom() -> None:
    statuses = healthy()
    statuses["n2"] |= {"proven": False, "not_begun": "n2 does not begin group g: start n0"}
    (alarm,) = group_alarms(statuses)
    assert alarm == (Severity.CRITICAL, "n2 does not begin group g: start n0")


def test_members_of_two_births_raise_an_alarm() -> None:
    statuses = healthy()
    statuses["n0"] |= {"birth": "00"}
    assert group_alarms(statuses) == []  # the others may not know it yet
    statuses["n1"] |= {"birth": "01"}
    (alarm,) = group_alarms(statuses)
    assert alarm.severity is Severity.CRITICAL
    assert "began separately" in alarm.text


def test_a_member_far_behind_or_cut_off_is_named() -> None:
    behind = healthy(n1=peer(match_index=50_000 - BEHIND_ENTRIES - 1))
    assert texts(behind) == [f"n1 is {BEHIND_ENTRIES + 1} entries behind"]
    assert texts(healthy(n1=peer(match_index=50_000 - BEHIND_ENTRIES))) == []
    cut_off = healthy(n2=peer(connected=False, problem="cannot be reached"))
    assert texts(cut_off) == ["n0 does not reach n2: cannot be reached"]


def test_a_snapshot_on_its_way_is_told_with_how_much_is_there() -> None:
    installing = {"index": 9, "bytes_received": 10, "bytes_total": 40}
    assert "10 of 40 bytes" in texts(healthy(n1=peer(installing=installing)))[0]


def test_an_older_programs_status_raises_no_false_alarm() -> None:
    statuses = healthy()
    for said in statuses.values():
        for name in ("generation", "syncs", "sync_seconds", "disk_total_bytes", "disk_free_bytes"):
            del said[name]
    assert group_alarms(statuses) == []


def test_what_all_members_tell_is_said_once_and_is_critical() -> None:
    told = {"kind": "orphans", "member": "n1", "text": "n1 holds the committed entries 4..9"}
    statuses = healthy()
    for said in statuses.values():
        said["alarms"] = [told]
    (alarm,) = group_alarms(statuses)
    assert (alarm.severity, alarm.text) == (Severity.CRITICAL, told["text"])
