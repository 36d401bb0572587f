"""Reads the arguments of a scenario's lines. Everything here raises ValueError, with the form."""

from __future__ import annotations

import re
from collections.abc import Container

from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
)
from tests.dledger.core.configurations import address_of

NAME = re.compile(r"[a-z]\w*")

TRANSITIONS = {
    "": Transition.AUTO,
    "jointly": Transition.JOINT,
    "manually": Transition.JOINT_MANUAL,
}


def parse_terms(text: str) -> list[int]:
    """The terms of a log: `1x3 2` is three entries of term 1 and one of term 2."""
    terms: list[int] = []
    for word in text.split():
        found = re.fullmatch(r"(\d+)(?:x(\d+))?", word)
        if found is None:
            raise ValueError(f"{word!r} is no term and no run of a term, as 1 or 1x3")
        terms += [int(found[1])] * int(found[2] or 1)
    if terms != sorted(terms):
        raise ValueError("terms never decrease along a log")
    return terms


def new_names(text: str, known: Container[str]) -> list[str]:
    names = text.split()
    if not names or len(set(names)) < len(names) or any(name in known for name in names):
        raise ValueError("one name at least, each different, and new")
    for name in names:
        if NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name: a small letter, then letters and digits")
    return names


def parse_change(text: str) -> Change:
    what, _, name = text.partition(" ")
    match what:
        case "voter":
            return AddVoter(name, address_of(name))
        case "learner":
            return AddLearner(name, address_of(name))
        case "promote":
            return Promote(name)
        case "demote":
            return Demote(name)
        case "remove":
            return Remove(name)
        case _:
            raise ValueError(f"{what!r} is no change: voter, learner, promote, demote, remove")


def parse_number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{text!r} is no number above 0")
    return int(text)


def two_parts(text: str, between: str, form: str) -> tuple[str, str]:
    one, found, other = text.partition(between)
    if not found or not one or not other:
        raise ValueError(f"the form is: {form}")
    return one, other


def matched(text: str, pattern: str, form: str) -> tuple[str, ...]:
    found = re.fullmatch(pattern, text)
    if found is None:
        raise ValueError(f"the form is: {form}")
    return found.groups()
