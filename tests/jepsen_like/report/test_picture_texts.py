"""Texts of pictures: none over another and none cut off, whatever names and values a run has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from xml.etree.ElementTree import Element

import pytest

from jepsen_like.checkers.report import Problem
from jepsen_like.report.happened import Happened
from jepsen_like.report.lettering import LETTERS, Lettering, cut_to, text_width
from jepsen_like.report.page import page
from jepsen_like.report.space_time import SpaceTime, space_time_page
from jepsen_like.report.told_run import Fault
from tests.jepsen_like.report.test_report_page import SECOND_NS, operations, run_of
from tests.picture_texts import Pictures, unreadable

LONG = "broker-group-a.eu-west-1.example.com-"
NAMES: dict[str, Callable[[int], str]] = {
    "short": "n{}".format,
    "long": f"{LONG}{{}}".format,
    "long in the middle": f"{LONG}{{}}{LONG}".format,
    "of East Asia": "代理服务器集群成员节点名称{}".format,
}


def crowded(members: list[str], events: int = 200) -> list[Happened]:
    """A run in which everything is said at once, by all members."""
    chance = random.Random(7)
    made, at_s = [], 0.0
    for number in range(events):
        at_s += chance.choice((0.0, 0.0, 0.0001, 0.02))
        one, other = chance.choice(members), chance.choice(members)
        if one != other:
            made.append(Happened(at_s, "sent", one, "vote? term 12", number, other))
            kind = chance.choice(("arrived", "lost"))
            made.append(Happened(at_s + chance.random() / 50, kind, other, "", number))
        kind = chance.choice(("synced", "committed", "applied"))
        made.append(Happened(at_s, kind, one, "", number))
        if number % 3 == 0:
            made.append(Happened(at_s, "role", one, "pre-candidate 12"))
            made.append(Happened(at_s, "state", other, chance.choice(("up", "down", "frozen"))))
        if number % 5 == 0:
            made.append(Happened(at_s, "called", "", "append b'" + "x" * 90, number, one))
            made.append(Happened(at_s, "answered", "", "entry " + "9" * 90, number))
        if number % 11 == 0:
            made.append(Happened(at_s, "note", "", "broken: " + "y" * 90))
    return sorted(made, key=lambda event: event.at_s)


@pytest.mark.parametrize("names", NAMES)
def test_no_text_of_a_space_time_diagram_stands_over_another(names: str) -> None:
    for number in (1, 2, 3, 5, 9, 25):
        members = [NAMES[names](at) for at in range(number)]
        made = space_time_page(SpaceTime("crowded", "", members, crowded(members)))
        assert unreadable(made) == [], number
        (drawn,) = Pictures(made).drawn
        words = [text.words for text in drawn.texts]
        for said in ("clients", "append b'", "= entry 9", "broken: y", "pre-candidate, term 12"):
            assert any(one.startswith(said) for one in words), said


def test_long_names_of_members_are_told_apart() -> None:
    members = [NAMES["long in the middle"](at) for at in range(9)]
    made = space_time_page(SpaceTime("long names", "", members, crowded(members, 50)))
    (drawn,) = Pictures(made).drawn
    assert len({text.words for text in drawn.texts if text.size == LETTERS["member"].size}) == 9


def test_no_text_of_a_run_stands_over_another_in_wide_and_narrow_windows() -> None:
    history = operations(500)
    for at, one in enumerate(history):
        one.member = f"{LONG}{at % 3}"
        one.value = "v" * (at % 90)
    problem = Problem("not linearizable", "this", tuple(one.invoked_line for one in history[:50]))
    run = run_of(history, problem)
    for last_ns in (1_000, 3_333_333_333, 9_876_543_210_000, 10**18):
        faults = [Fault(f"{LONG} fault {at}", "all", 0, (at + 1) * SECOND_NS) for at in range(20)]
        history[-1].ended_ns = history[-1].invoked_ns + last_ns
        assert unreadable(page(replace(run, faults=[*faults, *run.faults]))) == [], last_ns


def test_each_picture_of_a_run_is_drawn_for_a_phone() -> None:
    history = operations(200)
    made = page(run_of(history, Problem("not linearizable", "this", (history[9].invoked_line,))))
    narrow = [one for one in Pictures(made).drawn if "narrow" in one.around]
    assert len(narrow) == 3
    assert min(text.size for one in narrow for text in one.texts) >= 11


def test_a_text_takes_the_first_place_that_is_free() -> None:
    texts = Lettering(Element("svg"))
    assert texts.write("member", [(10, 10)], "member")
    assert not texts.write("another", [(12, 12), (30, 8)], "said")
    assert texts.write("another", [(12, 12), (12, 60)], "said")
    assert not texts.write("third", [(20, 61)], "said")


def test_a_text_is_cut_to_what_fits() -> None:
    assert cut_to("short", 100.0, "name") == "short"
    cut = cut_to("a longer name", 50.0, "name")
    assert cut.endswith("…")
    assert text_width(cut, "name") <= 50.0
    assert len(cut_to("成" * 20, 50.0, "name")) < len(cut)
