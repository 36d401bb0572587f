"""What a member writes to its log about its doubt and its proof."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.core.admission.standing import Forgotten
from dledger.core.replica import Replica
from dledger.node import admission_log
from dledger.node.admission_log import YOUNG_LOG_ENTRIES, AdmissionLog

IN_DOUBT = {"lost": True, "proven": False}
PROVEN = {"lost": False, "proven": True}


def lines_of(caplog: pytest.LogCaptureFixture, *turns: dict[str, Any]) -> list[str]:
    """The lines after these turns of a member that began with an empty folder."""
    caplog.set_level(logging.INFO)
    admission = SimpleNamespace(lost=False, is_fresh=True, told_last_index=-1, forgotten=None)
    state = SimpleNamespace(proven=False)
    view = SimpleNamespace(last_index=-1)
    replica = SimpleNamespace(
        admission=admission, state=state, view=view, dispatchers={}, hold=lambda _: held
    )
    held: object = None
    log = AdmissionLog("g", "n1", cast(Replica, replica), lambda: 0.0)
    for turn in turns:
        admission.lost, state.proven = turn["lost"], turn["proven"]
        held = turn.get("hold")
        admission.told_last_index = turn.get("told", -1)
        admission.forgotten = turn.get("forgotten")
        log.look()
    return [record.getMessage() for record in caplog.records]


def test_a_doubt_and_its_proof_are_said_once_each(caplog: pytest.LogCaptureFixture) -> None:
    told = {**IN_DOUBT, "told": 5}
    doubt, proof = lines_of(caplog, IN_DOUBT, told, told, {**PROVEN, "told": 5})
    assert "is new or lost data: it neither votes nor counts" in doubt
    assert "it votes and counts" in proof


def test_only_a_folder_with_entries_is_told_to_be_an_older_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for durable, text in ((-1, "n1 is new or lost data"), (0, "the folder of n1 is an older copy")):
        caplog.clear()
        forgotten = Forgotten("n0", promised=1, held=1, term=1, durable=durable)
        (line,) = lines_of(caplog, {**IN_DOUBT, "told": 1, "forgotten": forgotten})
        assert line.startswith(text)


def test_a_proof_in_the_turn_that_tells_of_the_log_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (line,) = lines_of(caplog, IN_DOUBT, {**PROVEN, "told": 5})
    assert line == "n1 is new or lost data, and holds the log of a leader: it votes and counts"


def test_a_loss_in_a_group_that_is_not_new_is_a_warning_even_if_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines_of(caplog, IN_DOUBT, {**PROVEN, "told": YOUNG_LOG_ENTRIES})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_a_member_of_a_new_group_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert lines_of(caplog, IN_DOUBT, PROVEN) == []


def test_a_hold_is_said_once_and_again_after_a_proof(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission_log, "hold_text", lambda _group, _node, hold: hold)
    held = {"lost": False, "proven": False, "hold": "nobody says that it is new"}
    assert lines_of(caplog, held, held, PROVEN, PROVEN, held, held) == [held["hold"]] * 2
