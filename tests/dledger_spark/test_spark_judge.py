"""Which ranges a planner judges, and which it remembers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.query import record_judge
from dledger_spark.query.record_judge import RecordJudge
from dledger_spark.records.acceptance import Acceptance, Run
from remoting.message.record import MessageRecord
from tests.dledger_spark.broker_bodies import BrokerBodies

LogWriter = Callable[..., Path]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The ranges whose entries were read to judge them."""
    found = list[range]()
    judge = record_judge._judge

    def note(log: FolderLog, entries: range, state: Acceptance, **more: bool) -> list[Run]:
        found.append(entries)
        return judge(log, entries, state, **more)

    monkeypatch.setattr(record_judge, "_judge", note)
    return found


def some(word: bytes) -> BrokerBodies:
    """Six entries, of which the fourth is refused."""
    bodies = BrokerBodies()
    bodies.put_topic("t")
    bodies.message(MessageRecord(topic="t", body=word))
    bodies.delete_topic("t")
    bodies.record(MessageRecord(topic="t", body=word, queue_offset=1))
    bodies.put_topic("t")
    bodies.message(MessageRecord(topic="t", body=word))
    return bodies


def refused(folder: Path, entries: range, *, fail_on_data_loss: bool = True) -> list[Run]:
    """What another query finds."""
    judge = RecordJudge(fail_on_data_loss=fail_on_data_loss)
    return judge.refused(FolderLog(open_log(str(folder))), entries, 0)


def test_the_next_query_does_not_judge_a_range_again(
    write_log: LogWriter, judged: list[range]
) -> None:
    folder = write_log(some(b"x").bodies)
    for _query in range(3):
        assert refused(folder, range(6)) == [(3, 3)]
    assert judged == [range(6)]


def test_a_judge_goes_on_behind_a_range_that_another_query_judged(
    write_log: LogWriter, judged: list[range]
) -> None:
    folder = write_log(some(b"x").bodies)
    refused(folder, range(3))
    judge = RecordJudge(fail_on_data_loss=True)
    log = FolderLog(open_log(str(folder)))
    assert judge.refused(log, range(3), 0) == []
    assert judge.refused(log, range(3, 6), 0) == [(3, 3)]
    assert judged == [range(3), range(3, 6)]


def test_another_log_at_the_same_path_is_judged_anew(
    write_log: LogWriter, judged: list[range]
) -> None:
    folder = write_log(some(b"x").bodies)
    assert refused(folder, range(6)) == [(3, 3)]
    shutil.rmtree(folder)
    bodies = some(b"y")
    bodies.bodies[2] = b"no command"
    write_log(bodies.bodies)
    assert refused(folder, range(6)) == [(5, 5)]
    assert judged == [range(6), range(6)]


def test_what_was_found_with_losses_allowed_is_not_remembered(
    write_log: LogWriter, judged: list[range]
) -> None:
    folder = write_log(some(b"x").bodies)
    for _query in range(2):
        refused(folder, range(6), fail_on_data_loss=False)
    assert judged == [range(6), range(6)]


def test_no_more_than_some_ranges_are_remembered(
    write_log: LogWriter, judged: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_judge, "_remembered", {})
    monkeypatch.setattr(record_judge, "MAX_REMEMBERED", 2)
    folder = write_log(some(b"x").bodies)
    for stop in (2, 4, 6, 2):
        refused(folder, range(stop))
    assert len(record_judge._remembered) == 2
    assert judged == [range(2), range(4), range(6), range(2)]
