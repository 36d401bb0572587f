"""The reason of a read that fails, in every state in which it may."""

from __future__ import annotations

from dledger.core.reads.read_index import ReadLost, ReadReady
from dledger.errors import ReadUnavailable
from dledger.status import InstallStatus
from dledger.waits.pending_reads import PendingReads, ReadOutcome
from dledger.waits.read_problem import ReadFacts, too_old

INF = float("inf")


def facts(role: str = "follower", leader: str | None = "n0", **others: object) -> ReadFacts:
    begin = ReadFacts(role, leader, 3, commits_in_own_term=False, applied=12)
    return begin._replace(**others)  # type: ignore[arg-type]


ARRIVES = InstallStatus(40, 100, 900)
ARRIVED = InstallStatus(40, 900, 900)


def reason(known: ReadFacts, *, index: int | None = None, deposed: bool = False) -> str:
    """The reason of a read, confirmed for `index` or not, that the protocol gives up."""
    outcomes: list[ReadOutcome] = []
    reads = PendingReads(lambda ticket: None, lambda: known, wait_s=2.0)
    ticket = reads.begin(outcomes.append)
    if index is not None:
        reads.take([ReadReady(ticket, index)], [])
    reads.take([], [ReadLost(ticket, deposed)])
    (outcome,) = outcomes
    assert isinstance(outcome, ReadUnavailable)
    return outcome.reason


def test_each_state_in_which_a_read_fails_has_its_reason() -> None:
    told = {
        "joining": reason(facts("joining", None)),
        "joining, leader cut off": reason(facts("joining")),
        "learner without a leader": reason(facts("learner", None)),
        "removed": reason(facts("removed", None)),
        "removed, and remembers a leader": reason(facts("removed")),
        "no leader": reason(facts("candidate", None)),
        "no leader, snapshot arrives": reason(facts("learner", None, installing=ARRIVES)),
        "leader silent": reason(facts()),
        "leader in a minority": reason(facts("leader", "n1", commits_in_own_term=True)),
        "new leader": reason(facts("leader", "n1")),
        "stepped down": reason(facts(leader=None), deposed=True),
        "stepped down for another": reason(facts(), deposed=True),
        "behind": reason(facts(), index=60),
        "empty": reason(facts(applied=-1), index=60),
        "installing": reason(facts(installing=ARRIVES), index=60),
        "installed, log is short": reason(facts(installing=ARRIVED, awaited=40), index=60),
        "awaited since the start": reason(facts(awaited=40), index=60),
        "restoring": reason(facts(installing=ARRIVED, awaited=40, is_restoring=True), index=60),
        "restoring, stepped down": reason(
            facts(awaited=40, is_restoring=True), index=60, deposed=True
        ),
    }
    joining = "this member joins the group, and no leader has sent it the log yet"
    removed = "this member was removed from the group"
    silent = "the leader, n0, did not answer within 2 s"
    deposed = "this member stopped leading before it could serve the read, and "
    here = "the leader's snapshot of entry 40 is here, and the log does not reach it yet"
    restoring = "the state is being replaced by the leader's snapshot of entry 40"
    needs = ", and the read needs entry 60"
    assert told == {
        "joining": joining,
        "joining, leader cut off": silent,
        "learner without a leader": "this learner knows no leader",
        "removed": removed,
        "removed, and remembers a leader": removed,
        "no leader": "this member knows no leader in term 3: perhaps no majority is connected",
        "no leader, snapshot arrives": "this learner knows no leader",
        "leader silent": silent,
        "leader in a minority": "no quorum confirmed within 2 s that this member still leads",
        "new leader": "this leader has committed nothing in term 3 within 2 s",
        "stepped down": deposed + "knows no leader",
        "stepped down for another": deposed + "follows n0",
        "behind": "the state here includes entries up to 12" + needs,
        "empty": "the state here includes no entry" + needs,
        "installing": "the leader's snapshot of entry 40 arrives: 100 of 900 bytes" + needs,
        "installed, log is short": here + needs,
        "awaited since the start": here + needs,
        "restoring": restoring + needs,
        "restoring, stepped down": restoring + needs,
    }


def test_each_state_that_is_too_old_has_its_reason() -> None:
    restoring = facts(awaited=40, is_restoring=True)
    told = {
        "old": too_old(facts(), 3.0, 1.5),
        "restoring, and old": too_old(restoring, 3.0, 1.5),
        "restoring, at any age": too_old(restoring, 3.0, INF),
        "joining": too_old(facts("joining", None), INF, 1.5),
        "removed since the start": too_old(facts("removed", None), INF, 1.5),
        "no leader": too_old(facts(leader=None), INF, 1.5),
        "behind since the start": too_old(facts(), INF, 1.5),
        "installing": too_old(facts(installing=ARRIVES), INF, 1.5),
    }
    more = ", and the leader has committed more or has not said how much"
    assert told == {
        "old": "the state here is 3 s old, 1.5 were allowed",
        "restoring, and old": "the state is being replaced by the leader's snapshot of entry 40",
        "restoring, at any age": "the state is being replaced by the leader's snapshot of entry 40",
        "joining": "this member joins the group, and no leader has sent it the log yet",
        "removed since the start": "this member was removed from the group",
        "no leader": "this member knows no leader in term 3: perhaps no majority is connected",
        "behind since the start": "the state here includes entries up to 12" + more,
        "installing": "the leader's snapshot of entry 40 arrives: 100 of 900 bytes" + more,
    }
