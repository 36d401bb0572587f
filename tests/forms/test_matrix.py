"""Every public call of every form, in every situation: none hangs, and each error is documented."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forms import situations
from tests.forms.carrying_out import LIMIT_S
from tests.forms.form_classes import ASYNCIO, BLOCKING, TRIO
from tests.forms.opened_forms import OpenedForm, opened
from tests.forms.promises import RAISED, Situation, problem
from tests.forms.real_servers import Servers, servers

# They end the objects of the form, so that each has its own.
_ENDING = (
    situations.after_the_end,
    situations.while_their_block_ends,
    situations.while_the_member_fails,
    situations.while_the_servers_die,
)


def cells(chosen: tuple[Situation, ...], *, ending: bool) -> list[object]:
    return [
        pytest.param(situation, form, id=f"{situation.__name__}-{form}")
        for situation, promised in RAISED.items()
        for form in promised
        if (situation in _ENDING) is ending and (not chosen or situation in chosen)
    ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with servers(tmp_path_factory.mktemp("servers")) as found:
        yield found


@pytest.fixture(scope="module")
def forms(running: Servers) -> Iterator[dict[str, OpenedForm]]:
    with (
        opened(TRIO, running, TRIO) as trio,
        opened(BLOCKING, running, BLOCKING) as plain,
        opened(ASYNCIO, running, ASYNCIO) as in_asyncio,
    ):
        yield {TRIO: trio, BLOCKING: plain, ASYNCIO: in_asyncio}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Servers that stand still or die, and machines that raise, are told in the log."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def judge(situation: Situation, form: OpenedForm) -> None:
    outcomes = situation(form)
    problems = [problem(situation, form.form, outcome) for outcome in outcomes]
    told = [one for one in problems if one is not None]
    assert not told, f"{len(told)} of {len(outcomes)}:\n" + "\n".join(told)
    assert len(outcomes) > 20


@pytest.mark.parametrize(("situation", "form"), cells((), ending=False))
def test_a_call_returns_or_raises_what_it_documents(
    situation: Situation, form: str, forms: dict[str, OpenedForm]
) -> None:
    opened_form = forms[form]
    blocks = blocks_of(opened_form)
    judge(situation, opened_form)
    # Nothing stays open, whatever became of the call that opened it.
    until = time.monotonic() + LIMIT_S
    while (left := blocks_of(opened_form)) != blocks and time.monotonic() < until:
        time.sleep(0.01)
    assert left == blocks


# In the default suite at each nineteenth line.
@pytest.mark.slow
@pytest.mark.parametrize("step", [19, pytest.param(1, marks=pytest.mark.long)])
def test_a_signal_may_come_at_any_line_of_a_call(forms: dict[str, OpenedForm], step: int) -> None:
    for call in forms[BLOCKING].calls():
        if call.name.endswith("_soon"):
            lines, errors = situations.interrupted_at_lines(call, step)
            assert lines > 10, call
            assert errors == [], call


def blocks_of(form: OpenedForm) -> list[int]:
    return [len(loop._blocks) for loop in form.loops]


SHORT = (situations.after_the_end, situations.while_their_block_ends)


@pytest.mark.parametrize(("situation", "form"), cells(SHORT, ending=True))
def test_a_call_is_answered_when_its_block_ends(
    situation: Situation, form: str, running: Servers
) -> None:
    with opened(form, running, f"{situation.__name__}-{form}") as own:
        judge(situation, own)


# Calls that ask dead servers go on for their time limits: half a minute of waiting.
LONG = (situations.while_the_member_fails, situations.while_the_servers_die)


@pytest.mark.long
@pytest.mark.parametrize(("situation", "form"), cells(LONG, ending=True))
def test_a_call_is_answered_when_what_it_asks_dies(
    situation: Situation, form: str, tmp_path: Path
) -> None:
    with servers(tmp_path) as found, opened(form, found, form) as own:
        judge(situation, own)
