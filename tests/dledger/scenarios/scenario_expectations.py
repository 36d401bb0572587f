"""What a scenario may expect, and how it is read off the group."""

from __future__ import annotations

import re
from collections.abc import Callable

from dledger.core.entry_dispatcher import EntryDispatcher
from tests.dledger.scenarios.scenario_group import ScenarioGroup
from tests.dledger.scenarios.scenario_member import Impossible, ScenarioMember, image_of
from tests.dledger.scenarios.scenario_messages import ANYBODY, index_text, parse_pattern

NOBODY = "nobody"


class Differs(AssertionError):
    """What was found is not what was expected."""

    def __init__(self, what: str, expected: str, found: str) -> None:
        super().__init__(f"{what}: expected {expected}, found {found}")


def expect(group: ScenarioGroup, text: str) -> None:
    """Check one line. Raises Differs, Impossible, or ValueError if it says nothing known."""
    subject, found, claims = text.partition(": ")
    if not found or not claims:
        raise ValueError("the form is: expect SUBJECT: CLAIM[, CLAIM ...]")
    subject_words = subject.split(" ")
    match subject_words:
        case ["messages", *pattern]:
            _expect_messages(group, " ".join(pattern), claims)
        case ["sent", *pattern]:
            wanted = parse_pattern(" ".join(pattern))
            count = sum(wanted.matches(sent) for sent in group.sent)
            _compare(subject, claims, str(count))
        case [label] if label in group.proposals:
            _compare(label, claims, group.outcome(group.proposals[label]))
        case [label] if label in group.reads:
            read = group.reads[label]
            ready = "open" if read.index is None else f"ready {read.index}"
            _compare(label, claims, "lost" if read.lost else ready)
        case [name, ">", peer]:
            _expect_dispatcher(group.member(name), peer, claims)
        case names:
            for name in names:
                _expect_member(group.member(name), claims)


def _compare(what: str, expected: str, found: str) -> None:
    if expected != found:
        raise Differs(what, expected, found)


def _claims(text: str) -> list[tuple[str, str]]:
    pairs = []
    for claim in text.split(", "):
        name, _, value = claim.partition(" ")
        pairs.append((name, value))
    return pairs


# --- messages -------------------------------------------------------------------------------------


def _expect_messages(group: ScenarioGroup, pattern: str, claims: str) -> None:
    """The whole list, in the order they were sent; a kind without its detail fits any detail."""
    wanted = parse_pattern(pattern)
    on_their_way = [sent for sent in group.flight if wanted.matches(sent)]
    found = [sent.text for sent in on_their_way]
    expected = [] if claims == "none" else claims.split(", ")
    for claim in expected:
        parse_pattern(claim)
    fits = len(found) == len(expected) and all(
        claim in (text, text.partition(" ")[0]) for claim, text in zip(expected, found, strict=True)
    )
    if not fits:
        raise Differs(f"messages {pattern or ANYBODY}", claims, ", ".join(found) or "none")


# --- a leader's view of one peer ------------------------------------------------------------------

_DISPATCHER: dict[str, Callable[[EntryDispatcher], str]] = {
    "phase": lambda dispatcher: dispatcher.phase.name.lower().replace("install_", ""),
    "match": lambda dispatcher: index_text(dispatcher.match_index),
    "next": lambda dispatcher: str(dispatcher.next_index),
}


def _expect_dispatcher(member: ScenarioMember, peer: str, claims: str) -> None:
    dispatcher = member.up.dispatchers.get(peer)
    for name, expected in _claims(claims):
        if name not in _DISPATCHER:
            raise ValueError(f"{name!r} is nothing a leader knows of a peer: {list(_DISPATCHER)}")
        if dispatcher is None:
            raise Impossible(f"{member.name} sends nothing to {peer}")
        _compare(f"{member.name} > {peer} {name}", expected, _DISPATCHER[name](dispatcher))


# --- a member -------------------------------------------------------------------------------------


def _terms_text(terms: tuple[int, ...]) -> str:
    words: list[str] = []
    at = 0
    while at < len(terms):
        count = terms.count(terms[at])  # terms never decrease: equal ones are together
        words.append(f"{terms[at]}x{count}" if count > 1 else str(terms[at]))
        at += count
    return " ".join(words) or "empty"


def _names(names: frozenset[str]) -> str:
    return " ".join(sorted(names)) or NOBODY


def _busy(member: ScenarioMember) -> str:
    """Whether it asks for another turn at once: never, once it has had one."""
    return "yes" if member.up.next_deadline() <= member.seen_at else "no"


def _transfer(member: ScenarioMember) -> str:
    transfer = member.up.handover.transfer
    return transfer.target if transfer is not None else NOBODY


_MEMBER: dict[str, Callable[[ScenarioMember], str]] = {
    "role": lambda member: "down" if member.core is None else member.core.state.role.value,
    "term": lambda member: str(member.up.state.term),
    "vote": lambda member: member.up.state.voted_for or NOBODY,
    "leader": lambda member: member.up.state.leader or NOBODY,
    "log": lambda member: _terms_text(image_of(member.up.view).terms),
    "disk": lambda member: _terms_text(member.image.terms),
    "begin": lambda member: str(member.up.view.before_begin + 1),
    "last": lambda member: index_text(member.up.view.last_index),
    "committed": lambda member: index_text(member.up.state.committed),
    "durable": lambda member: index_text(member.up.state.durable),
    "applied": lambda member: index_text(member.up.state.applied),
    "transfer": _transfer,
    "proven": lambda member: "yes" if member.up.state.proven else "no",
    "configuration": lambda member: index_text(member.up.state.membership.index),
    "voters": lambda member: _names(member.up.state.membership.configuration.voters),
    "outgoing": lambda member: _names(member.up.state.membership.configuration.outgoing),
    "learners": lambda member: _names(member.up.state.membership.configuration.learners),
    "demoted": lambda member: _names(member.up.state.membership.configuration.learners_next),
    "busy": _busy,
}

_RUN = re.compile(r"\d+x1\b")


def _expect_member(member: ScenarioMember, claims: str) -> None:
    for name, expected in _claims(claims):
        if name not in _MEMBER:
            raise ValueError(f"{name!r} is nothing a member has: {', '.join(_MEMBER)}")
        if _RUN.search(expected):
            raise ValueError("a run of one entry is written as its term alone")
        _compare(f"{member.name} {name}", expected, _MEMBER[name](member))
