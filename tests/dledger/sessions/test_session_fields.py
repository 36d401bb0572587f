"""A table of sessions that was restored from a snapshot has every field of the one it is of."""

from __future__ import annotations

import random

from dledger.sessions.session_table import SessionLimits, SessionTable, Verdict
from tests.field_walk import FieldWalk

SPARED = {"SessionLimits.sessions": "looked at by an open alone, which brings its own"}


def test_each_field_of_a_restored_table_is_that_of_the_original() -> None:
    chance, walk = random.Random(3), FieldWalk(spared=SPARED)
    table, index = SessionTable(), 0
    for step in range(600):
        session, now_ms = chance.randrange(6), step * 7
        index += 1
        match chance.choice(("open", "close", "expire", *["append"] * 12)):
            case "open" if session not in table:
                limits = SessionLimits(4, chance.randrange(1, 9), chance.randrange(100, 900))
                table.open(session, chance.randrange(50, 5_000), limits, now_ms)
            case "close" if chance.random() < 0.2:
                table.close(session, now_ms)
            case "expire":
                table.expire(now_ms)
            case _ if session in table:
                sequence = table.expected(session) - chance.choice((0, 0, 0, 1))
                answered = chance.randrange(1, sequence + 2)
                if table.admit(session, sequence, answered, now_ms) is Verdict.FRESH:
                    result = chance.choice((None, b"", bytes(chance.randrange(60))))
                    table.keep(session, sequence, index, result)
        restored = SessionTable.thawed(table.time_ms, table.frozen())
        walk.check_equal(restored, table)
        assert list(restored) == list(table), "the least recently used first"
    assert walk.unchanged() == set()
