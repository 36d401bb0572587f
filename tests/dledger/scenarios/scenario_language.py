"""Plays a scenario, line by line: each is a verb with its arguments. See docs/scenarios.md.

A line that says nothing known is ScenarioMalformed, one that the group does not fulfil is
ScenarioFailed; both name file and line. `Scenario` can be fed line by line, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dledger.core.hard_state import HardState
from dledger.core.replica import Replica
from dledger.errors import DLedgerError, InvariantBroken
from tests.dledger.core.raft_promises import PromiseBroken
from tests.dledger.scenarios.scenario_arguments import (
    TRANSITIONS,
    matched,
    new_names,
    parse_change,
    parse_number,
    parse_terms,
    two_parts,
)
from tests.dledger.scenarios.scenario_expectations import Differs, expect
from tests.dledger.scenarios.scenario_group import ScenarioGroup
from tests.dledger.scenarios.scenario_member import Impossible, ScenarioMember, Settings
from tests.dledger.scenarios.scenario_messages import ANYBODY, parse_pattern


class ScenarioMalformed(Exception):
    """A line is not of the language."""


class ScenarioFailed(AssertionError):
    """A line did not go as it says."""


class Scenario:
    """A group, and what the lines so far made of it."""

    def __init__(self, source: str = "scenario") -> None:
        self.source = source
        self.lines: list[str] = []
        self.settings = Settings()
        self._group: ScenarioGroup | None = None
        self._setup: dict[str, Callable[[str], None]] = {
            "members": self._members,
            "learners": self._learners,
            "log": self._log,
            "record": self._record,
            "patience": self._patience,
            "batch": self._batch,
            "drift": self._drift,
            "prefer": self._prefer,
        }
        self._events: dict[str, Callable[[str], None]] = {
            "wait": self._wait,
            "run": self._run,
            "timeout": self._time_out,
            "settle": self._settle,
            "deliver": self._deliver,
            "drop": self._drop,
            "repeat": self._repeat,
            "hold": self._hold,
            "release": self._release,
            "cut": self._cut,
            "mend": self._mend,
            "sync": self._sync,
            "apply": self._apply,
            "note": self._note,
            "crash": self._crash,
            "kill": self._kill,
            "restart": self._restart,
            "lose": self._lose,
            "wipe": self._wipe,
            "discard": self._discard,
            "snapshot": self._snapshot,
            "propose": self._propose,
            "read": self._read,
            "join": self._join,
            "change": self._change,
            "leave": self._leave,
            "transfer": self._transfer,
            "forget": self._forget,
            "gone": self._gone,
            "unreachable": self._unreachable,
            "reachable": self._reachable,
            "fails": self._fails,
            "expect": self._expect,
        }

    @property
    def verbs(self) -> set[str]:
        """What a line can begin with."""
        return {*self._setup, *self._events}

    @property
    def group(self) -> ScenarioGroup:
        """The group; made when it is first needed."""
        if self._group is None:
            if not self.settings.names:
                raise ValueError("the first line must be: members NAME NAME ...")
            self._group = ScenarioGroup(self.settings)
        return self._group

    def play(self, line: str) -> None:
        """Carry out one line. Raises ScenarioMalformed, ScenarioFailed."""
        self.lines.append(line)
        text = line.partition("#")[0].strip()
        if not text:
            return
        place = f"{self.source}:{len(self.lines)}: {text}"
        try:
            self._carry_out(text)
        except (Differs, Impossible, PromiseBroken, InvariantBroken) as error:
            raise ScenarioFailed(f"{place}\n    {error}") from error
        except DLedgerError as error:
            raise ScenarioFailed(f"{place}\n    {type(error).__name__}: {error}") from error
        except ValueError as error:
            raise ScenarioMalformed(f"{place}\n    {error}") from error

    def _carry_out(self, text: str) -> None:
        verb, _, rest = text.partition(" ")
        if "  " in text:
            raise ValueError("words are separated by single spaces")
        if verb in self._setup:
            if self._group is not None:
                raise ValueError(f"{verb} must come before anything happens")
            self._setup[verb](rest)
        elif verb in self._events:
            self._events[verb](rest)
        else:
            known = ", ".join(sorted(self._setup | self._events))
            raise ValueError(f"{verb!r} is no verb: {known}")

    # --- before anything happens --------------------------------------------------------------

    def _members(self, rest: str) -> None:
        if self.settings.names:
            raise ValueError("members: once")
        self.settings.names = new_names(rest, [])

    def _learners(self, rest: str) -> None:
        if self.settings.learners or not self.settings.names:
            raise ValueError("learners: once, and after the members")
        self.settings.learners = new_names(rest, self.settings.names)

    def _log(self, rest: str) -> None:
        name, terms = two_parts(rest, ": ", "log NAME: TERMS")
        self.settings.logs[self._known(name)] = parse_terms(terms)

    def _record(self, rest: str) -> None:
        found = matched(
            rest,
            r"(\w+): term (\d+)(?:, vote (\w+))?(?:, committed (\d+))?",
            "record NAME: term NUMBER[, vote NAME][, committed INDEX]",
        )
        name, term, vote, committed = found
        state = HardState(int(term), vote or None, int(committed or -1))
        self.settings.records[self._known(name)] = state

    def _patience(self, rest: str) -> None:
        name, share = matched(rest, r"(\w+): (0\.\d+)", "patience NAME: 0.SHARE")
        self.settings.patience[self._known(name)] = float(share)

    def _batch(self, rest: str) -> None:
        self.settings.batch = parse_number(rest)

    def _drift(self, rest: str) -> None:
        [share] = matched(rest, r"(0\.\d+)", "drift 0.SHARE")
        self.settings.drift = float(share)

    def _prefer(self, rest: str) -> None:
        self.settings.preferred = self._known(rest)

    def _known(self, name: str) -> str:
        known = [*self.settings.names, *self.settings.learners]
        if name not in known:
            raise ValueError(f"{name!r} is not one of the members {known}")
        return name

    # --- time, the network, disks -------------------------------------------------------------

    def _wait(self, rest: str) -> None:
        held_ms, _, names = rest.partition(" ")
        group = self.group
        members = self._several(names)
        group.now_ms += parse_number(held_ms)
        group.tick(members)

    def _run(self, rest: str) -> None:
        self.group.run(parse_number(rest))

    def _time_out(self, rest: str) -> None:
        self.group.time_out(self._one(rest))

    def _settle(self, rest: str) -> None:
        self.group.settle(self._several(rest))

    def _deliver(self, rest: str) -> None:
        self.group.deliver(self.group.matching(parse_pattern(rest)))

    def _drop(self, rest: str) -> None:
        self.group.take(self.group.matching(parse_pattern(rest)))

    def _repeat(self, rest: str) -> None:
        found = self.group.matching(parse_pattern(rest))
        self.group.flight += [sent._replace() for sent in found]

    def _hold(self, rest: str) -> None:
        self.group.holds.append(parse_pattern(rest))

    def _release(self, rest: str) -> None:
        if not self.group.holds:
            raise Impossible("nothing is held")
        if not rest:
            self.group.holds.clear()
            return
        pattern = parse_pattern(rest)
        if pattern not in self.group.holds:
            raise Impossible(f"nothing is held as {rest!r}")
        self.group.holds.remove(pattern)

    def _cut(self, rest: str) -> None:
        self.group.cut(self._pairs(rest))

    def _mend(self, rest: str) -> None:
        gone = self.group.cuts & self._pairs(rest or ANYBODY)
        if not gone:
            raise Impossible("nothing is cut there")
        self.group.cuts -= gone

    def _sync(self, rest: str) -> None:
        first, _, others = rest.partition(" ")
        group = self.group
        if first == "begins":
            group.begin_sync(self._one(others))
        elif first == "ends":
            group.end_sync(self._one(others))
        else:
            for member in self._several(rest):
                group.sync(member)

    def _apply(self, rest: str) -> None:
        for member in self._several(rest):
            self.group.apply(member)

    def _note(self, rest: str) -> None:
        for member in self._several(rest):
            self.group.note(member)

    def _crash(self, rest: str) -> None:
        for member in self._several(rest):
            self.group.stop(member, written_survives=False)

    def _kill(self, rest: str) -> None:
        names, noticed = self._noticed(rest)
        for member in self._several(names):
            self.group.stop(member, written_survives=True, noticed=noticed)

    def _restart(self, rest: str) -> None:
        names, noticed = self._noticed(rest)
        for name in names.split():
            self.group.restart(self.group.member(name), noticed=noticed)

    def _noticed(self, rest: str) -> tuple[str, bool]:
        """The names, and whether the others learn it."""
        names = rest.removesuffix(" unnoticed")
        return names, names == rest

    def _lose(self, rest: str) -> None:
        name, index = matched(rest, r"(\w+) after (\d+|none)", "lose NAME after INDEX")
        self.group.lose(self.group.member(name), -1 if index == "none" else int(index))

    def _wipe(self, rest: str) -> None:
        for name in rest.split():
            self.group.wipe(self.group.member(name))

    def _discard(self, rest: str) -> None:
        name, index = matched(rest, r"(\w+) before (\d+)", "discard NAME before INDEX")
        self.group.discard(self._one(name), int(index))

    def _snapshot(self, rest: str) -> None:
        name, begin = matched(rest, r"(\w+)(?: from (\d+))?", "snapshot NAME [from INDEX]")
        self.group.snapshot(self._one(name), int(begin) if begin else None)

    # --- clients and operators ----------------------------------------------------------------

    def _propose(self, rest: str) -> None:
        form = r"(\w+) (\d+)(?: as (\w+))?"
        name, count, label = matched(rest, form, "propose NAME COUNT [as LABEL]")
        self.group.propose(self._one(name), parse_number(count), self._label(label))

    def _read(self, rest: str) -> None:
        name, label = matched(rest, r"(\w+) as (\w+)", "read NAME as LABEL")
        self.group.read(self._one(name), self._label(label) or "")

    def _join(self, rest: str) -> None:
        for name in new_names(rest, self.group.members):
            self.group.join(name)

    def _change(self, rest: str) -> None:
        form = r"(\w+)(?: (jointly|manually))?(?: as (\w+))?: (.+)"
        shape = "change NAME [jointly|manually] [as LABEL]: CHANGE NAME[, CHANGE NAME ...]"
        name, how, label, wanted = matched(rest, form, shape)
        changes = [parse_change(text) for text in wanted.split(", ")]
        transition = TRANSITIONS[how or ""]
        self.group.change(
            self._one(name),
            lambda core: core.propose_change(changes, transition),
            self._label(label),
        )

    def _leave(self, rest: str) -> None:
        name, label = matched(rest, r"(\w+)(?: as (\w+))?", "leave NAME [as LABEL]")
        self.group.change(self._one(name), lambda core: core.propose_leave(), self._label(label))

    def _transfer(self, rest: str) -> None:
        name, target = matched(rest, r"(\w+)(?: to (\w+))?", "transfer NAME [to NAME]")
        now = self.group.now
        self._call(name, lambda core: core.transfer_leadership(target, now))

    def _forget(self, rest: str) -> None:
        self._call(rest, lambda core: core.forget_leader())

    def _gone(self, rest: str) -> None:
        name, leader = two_parts(rest, " > ", "gone NAME > NAME")
        now, term = self.group.now, self.group.member(name).up.state.term
        self._call(name, lambda core: core.leader_gone(leader, term, now))

    def _unreachable(self, rest: str) -> None:
        name, peer = two_parts(rest, " > ", "unreachable NAME > NAME")
        now = self.group.now
        self._call(name, lambda core: core.unreachable(peer, now))

    def _reachable(self, rest: str) -> None:
        name, peer = two_parts(rest, " > ", "reachable NAME > NAME")
        now = self.group.now
        self._call(name, lambda core: core.reachable(peer, now))

    def _call(self, name: str, act: Callable[[Replica], object]) -> None:
        self.group.call(self._one(name), act)

    def _fails(self, rest: str) -> None:
        wanted, text = two_parts(rest, ": ", "fails ERROR: LINE")
        try:
            self._carry_out(text)
        except DLedgerError as error:
            if type(error).__name__ == wanted:
                return
            raise Differs("the error", wanted, f"{type(error).__name__}: {error}") from error
        raise Differs("the error", wanted, "none")

    def _expect(self, rest: str) -> None:
        expect(self.group, rest)

    # --- arguments ----------------------------------------------------------------------------

    def _one(self, name: str) -> ScenarioMember:
        member = self.group.member(name)
        _ = member.up
        return member

    def _several(self, names: str) -> Sequence[ScenarioMember]:
        return [self._one(name) for name in names.split()] if names else self.group.running

    def _pairs(self, text: str) -> set[tuple[str, str]]:
        """`n1 > n2` is that direction, `n1` is both directions between it and everybody."""
        group = self.group
        everybody = set(group.members)
        found: set[tuple[str, str]] = set()
        if " > " in text:
            sender, receiver = two_parts(text, " > ", "NAME > NAME")
            for name in (sender, receiver):
                if name != ANYBODY:
                    group.member(name)
            found = {
                (one, other)
                for one in (everybody if sender == ANYBODY else {sender})
                for other in (everybody if receiver == ANYBODY else {receiver})
            }
        else:
            names = everybody if text == ANYBODY else {group.member(n).name for n in text.split()}
            if not names:
                raise ValueError("say what: NAME > NAME, or NAME ...")
            found = {(a, b) for a in names for b in everybody}
            found |= {(b, a) for a, b in found}
        return found

    def _label(self, label: str | None) -> str | None:
        if label is None:
            return None
        group = self.group
        if label in group.members or label in group.proposals or label in group.reads:
            raise ValueError(f"{label} is somebody's name already")
        return label


def play_file(path: Path) -> Scenario:
    """Play a whole file. Raises ScenarioMalformed, ScenarioFailed."""
    scenario = Scenario(path.name)
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        scenario.play(line)
    if not any(line.startswith("expect ") for line in lines):
        raise ScenarioMalformed(f"{path.name}: it expects nothing")
    return scenario
