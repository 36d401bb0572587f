"""Appends that are refused together: each caller gets an error of its own."""

from __future__ import annotations

import dledger
from dledger.waits.pending_appends import Outcome
from tests.dledger.node.stored_member import StoredMember


def test_appends_that_are_refused_together_have_an_error_each() -> None:
    member = StoredMember("n0", ["n0", "n1", "n2"])
    outcomes: list[Outcome] = []
    for _ in range(3):
        member.member.turn.submit([b"body"], 4, outcomes.append)
    member.member.turn.propose(0.0)
    assert [str(outcome) for outcome in outcomes] == [str(dledger.NotLeader(None, 0))] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
