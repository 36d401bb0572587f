"""Raft's promises under random histories of a group of cores, independent of the simulation.

Hypothesis chooses the steps, and shortens a history that breaks a promise. Every step is a line of
the scenario language, so what is left is a scenario, which docs/scenarios.md says how to keep.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dledger.core.member_state import Role
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.errors import Rejected
from tests.dledger.scenarios.scenario_group import ScenarioGroup
from tests.dledger.scenarios.scenario_language import Scenario, ScenarioFailed
from tests.dledger.scenarios.scenario_member import ScenarioMember
from tests.examples import examples

# Enough for every election timeout, lease and read that is open to end, and for an election or two.
CALM_MS = 4_000

# A member, a message: so many that modulo the number of them each is as likely as another.
ANY = st.integers(0, 999)
FEW = st.integers(0, 4)

MAX_MEMBERS = 7
CHANGES = ["voter", "learner", "promote", "demote", "remove"]


class GroupMachine(RuleBasedStateMachine):
    """One to five members; each rule plays one line."""

    reached: ClassVar[Counter[str]] = Counter()

    @initialize(
        size=st.sampled_from([3, 3, 3, 2, 5, 1]),
        batch=st.sampled_from([1, 3, 100]),
        drift=st.sampled_from(["", "0.01"]),
        elected=st.sampled_from([True, True, True, False]),
        learners=st.sampled_from([0, 0, 1]),
    )
    def begin(self, size: int, batch: int, drift: str, elected: bool, learners: int) -> None:
        self.scenario = Scenario("found by chance")
        self.broken = False
        names = [f"n{number + 1}" for number in range(size + learners)]
        self.play(f"members {' '.join(names[:size])}")
        if learners:
            self.play(f"learners {' '.join(names[size:])}")
        self.play(f"batch {batch}")
        if drift:
            self.play(f"drift {drift}")
        if elected:
            self.play("run 1100")

    # --- how a step is played -----------------------------------------------------------------

    @property
    def group(self) -> ScenarioGroup:
        return self.scenario.group

    @property
    def running(self) -> list[ScenarioMember]:
        return self.group.running

    @property
    def down(self) -> list[ScenarioMember]:
        return [member for member in self.group.members.values() if member.core is None]

    @property
    def leaders(self) -> list[ScenarioMember]:
        return [member for member in self.running if member.up.state.role is Role.LEADER]

    def play(self, line: str) -> None:
        try:
            self.scenario.play(line)
        except ScenarioFailed as failure:
            if isinstance(failure.__cause__, Rejected):
                self.scenario.lines[-1] = f"fails {type(failure.__cause__).__name__}: {line}"
                return
            self.broken = True
            failure.add_note("\n".join(["", *self.scenario.lines, ""]))
            raise

    # --- time and messages --------------------------------------------------------------------

    @precondition(lambda self: len(self.leaders) < len(self.running))
    @rule(at=FEW)
    def time_out(self, at: int) -> None:
        others = [member for member in self.running if member not in self.leaders]
        self.play(f"timeout {others[at % len(others)].name}")

    @precondition(lambda self: len(self.running) > 1)
    @rule(at=FEW, without=FEW)
    def elect(self, at: int, without: int) -> None:
        """As `time_out`, with everything that is needed to be elected, and one who misses it."""
        names = [member.name for member in self.running]
        chosen = names[at % len(names)]
        missing = names[without % len(names)]
        if len(names) > 2 and missing != chosen:
            names.remove(missing)
        self.play(f"wait 600 {chosen}")
        if self.group.members[chosen] not in self.leaders:
            self.play(f"timeout {chosen}")
        self.play(f"settle {' '.join(names)}")

    @rule(for_ms=st.sampled_from([5, 25, 100, 250, 600]))
    def wait(self, for_ms: int) -> None:
        self.play(f"wait {for_ms}")

    @precondition(lambda self: self.running)
    @rule()
    def settle(self) -> None:
        self.play("settle")

    @precondition(lambda self: len(self.running) > 2)
    @rule(without=FEW)
    def settle_without_one(self, without: int) -> None:
        names = [member.name for member in self.running]
        del names[without % len(names)]
        self.play(f"settle {' '.join(names)}")

    @precondition(lambda self: self.group.flight)
    @rule()
    def deliver_all(self) -> None:
        self.play("deliver")

    @precondition(lambda self: self.group.flight)
    @rule(at=ANY)
    def deliver(self, at: int) -> None:
        self.play(f"deliver {self.one_message(at)}")

    @precondition(lambda self: self.group.flight)
    @rule(at=ANY)
    def drop(self, at: int) -> None:
        self.play(f"drop {self.one_message(at)}")

    @precondition(lambda self: 0 < len(self.group.flight) < 30)
    @rule(at=ANY)
    def repeat(self, at: int) -> None:
        self.play(f"repeat {self.one_message(at)}")

    def one_message(self, at: int) -> str:
        sent = self.group.flight[at % len(self.group.flight)]
        return f"first {sent.text} {sent.sender} > {sent.receiver}"

    @precondition(lambda self: len(self.group.members) > 1)
    @rule(one=FEW, other=FEW)
    def cut(self, one: int, other: int) -> None:
        names = list(self.group.members)
        sender = names[one % len(names)]
        receiver = names[other % len(names)]
        self.play(f"cut {sender} > {receiver}" if sender != receiver else f"cut {sender}")

    @precondition(lambda self: self.group.cuts)
    @rule()
    def mend(self) -> None:
        self.play("mend")

    # --- disks and processes --------------------------------------------------------------------

    @precondition(lambda self: self.running)
    @rule(at=FEW, how=st.sampled_from(["sync", "sync begins", "apply"]))
    def save(self, at: int, how: str) -> None:
        self.play(f"{how} {self.running[at % len(self.running)].name}")

    @precondition(lambda self: any(member.syncs for member in self.running))
    @rule(at=FEW)
    def sync_ends(self, at: int) -> None:
        syncing = [member for member in self.running if member.syncs]
        self.play(f"sync ends {syncing[at % len(syncing)].name}")

    @precondition(lambda self: len(self.running) > len(self.down))
    @rule(at=FEW, how=st.sampled_from(["crash", "kill"]))
    def stop(self, at: int, how: str) -> None:
        self.reached[how] += 1
        self.play(f"{how} {self.running[at % len(self.running)].name}")

    @precondition(lambda self: self.down)
    @rule(at=FEW)
    def restart(self, at: int) -> None:
        self.play(f"restart {self.down[at % len(self.down)].name}")

    @precondition(lambda self: any(member.up.state.applied > 0 for member in self.running))
    @rule(at=FEW, back=FEW, drop=st.booleans())
    def snapshot(self, at: int, back: int, drop: bool) -> None:
        able = [member for member in self.running if member.up.state.applied > 0]
        member = able[at % len(able)]
        applied = member.up.state.applied
        begin = max(applied - back, member.up.view.before_begin + 1)
        self.play(f"snapshot {member.name} from {begin}")
        if drop and begin > 0:
            self.play(f"discard {member.name} before {begin}")

    # --- clients and operators ------------------------------------------------------------------

    @precondition(lambda self: self.leaders)
    @rule(at=FEW, count=st.integers(1, 3))
    def propose(self, at: int, count: int) -> None:
        leader = self.leaders[at % len(self.leaders)]
        label = f"p{len(self.group.proposals) + 1}"
        self.play(f"propose {leader.name} {count} as {label}")

    @precondition(lambda self: self.leaders and len(self.group.members) > 1)
    @rule(at=FEW, count=st.integers(1, 3))
    def propose_alone(self, at: int, count: int) -> None:
        """Entries that are on the leader's disk, and on their way to nobody."""
        leader = self.leaders[at % len(self.leaders)].name
        self.play(f"cut {leader}")
        self.propose(at=at, count=count)
        self.play(f"sync {leader}")
        self.play("mend")

    @precondition(lambda self: self.running)
    @rule(at=FEW)
    def read(self, at: int) -> None:
        label = f"r{len(self.group.reads) + 1}"
        self.play(f"read {self.running[at % len(self.running)].name} as {label}")

    @precondition(lambda self: self.leaders)
    @rule(at=FEW, to=FEW)
    def transfer(self, at: int, to: int) -> None:
        names = list(self.group.members)
        leader = self.leaders[at % len(self.leaders)]
        self.play(f"transfer {leader.name} to {names[to % len(names)]}")

    @precondition(lambda self: self.running)
    @rule(at=FEW)
    def forget(self, at: int) -> None:
        self.play(f"forget {self.running[at % len(self.running)].name}")

    @precondition(lambda self: self.running)
    @rule(at=FEW, other=FEW, of_its_leader=st.booleans())
    def gone(self, at: int, other: int, of_its_leader: bool) -> None:
        """The sign that a process has ended, right or wrong."""
        names = list(self.group.members)
        member = self.running[at % len(self.running)]
        leader = member.up.state.leader if of_its_leader else None
        self.play(f"gone {member.name} > {leader or names[other % len(names)]}")

    @precondition(lambda self: self.leaders)
    @rule(at=FEW, to=FEW, how=st.sampled_from(["reachable", "unreachable"]))
    def connection(self, at: int, to: int, how: str) -> None:
        names = list(self.group.members)
        leader = self.leaders[at % len(self.leaders)]
        self.play(f"{how} {leader.name} > {names[to % len(names)]}")

    # --- changes of the group -------------------------------------------------------------------

    @precondition(lambda self: len(self.group.members) < MAX_MEMBERS)
    @rule()
    def join(self) -> None:
        self.play(f"join n{len(self.group.members) + 1}")

    @precondition(lambda self: self.leaders)
    @rule(
        at=FEW,
        how=st.sampled_from(["", " jointly", " manually"]),
        wanted=st.lists(st.tuples(st.sampled_from(CHANGES), FEW), min_size=1, max_size=2),
        done=st.booleans(),
    )
    def change(self, at: int, how: str, wanted: list[tuple[str, int]], done: bool) -> None:
        names = list(self.group.members)
        leader = self.leaders[at % len(self.leaders)]
        changes = ", ".join(f"{what} {names[-1 - one % len(names)]}" for what, one in wanted)
        label = f"p{len(self.group.proposals) + 1}"
        self.play(f"change {leader.name}{how} as {label}: {changes}")
        if done:
            self.play("settle")

    @precondition(lambda self: self.leaders)
    @rule(at=FEW)
    def leave(self, at: int) -> None:
        self.play(f"leave {self.leaders[at % len(self.leaders)].name}")

    # --- the end --------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Once nothing fails any more the group comes to one end, and answers everybody."""
        if not hasattr(self, "scenario") or self.broken:
            return
        if self.group.cuts:
            self.play("mend")
        if self.down:
            self.play(f"restart {' '.join(member.name for member in self.down)}")
        self.play(f"run {CALM_MS}")
        self.count_what_was_reached()
        everybody = " ".join(self.group.members)
        if not self.leaders:
            self.play(f"expect {everybody}: role leader")
        leader = max(self.leaders, key=lambda member: member.up.state.term)
        state, last = leader.up.state, leader.up.view.last_index
        names = " ".join(sorted(state.membership.members))
        self.play(f"expect {names}: term {state.term}, leader {leader.name}")
        self.play(f"expect {names}: last {last}, committed {last}, applied {last}")
        for label, proposal in self.group.proposals.items():
            self.play(f"expect {label}: {self.group.outcome(proposal).replace('open', 'decided')}")
        for label, read in self.group.reads.items():
            if read.index is None and not read.lost:
                self.play(f"expect {label}: ready")

    def count_what_was_reached(self) -> None:
        group = self.group
        self.reached["changed"] += sum(m.up.state.membership.index >= 0 for m in self.running)
        outcomes = [group.outcome(proposal) for proposal in group.proposals.values()]
        self.reached["leader"] += len(group.promises.leaders)
        self.reached["committed"] += outcomes.count("committed")
        self.reached["lost"] += outcomes.count("lost")
        self.reached["read"] += sum(read.index is not None for read in group.reads.values())
        for sent in group.sent:
            if sent.kind in ("truncate", "stand", "snapshot"):
                self.reached[sent.kind] += 1
            elif sent.text == "append-answer no":
                self.reached["conflict"] += 1


CHOICE = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)


@pytest.mark.hypothesis
def test_no_history_of_a_group_breaks_a_promise() -> None:
    GroupMachine.reached.clear()
    run_state_machine_as_test(GroupMachine, settings=CHOICE)
    # A machine that only ever waits would prove nothing. What is rarer is met in some runs only.
    for what in ("leader", "committed", "read", "changed"):
        assert GroupMachine.reached[what], f"never reached: {what}"


# --- the checks can fail --------------------------------------------------------------------------


class Impatient(GroupMachine):
    """Ends without a look at how the group comes to rest."""

    def teardown(self) -> None:
        pass


def replayed(lines: str) -> Scenario:
    scenario = Scenario("again")
    for line in lines.strip().splitlines():
        scenario.play(line)
    return scenario


def test_a_promise_that_is_broken_is_told_as_a_scenario() -> None:
    # Found, not shortened: that takes Hypothesis several seconds.
    found = settings(CHOICE, max_examples=200, phases=[Phase.generate], database=None)
    with patch.object(QuorumAckChecker, "committed", lambda checker, view: view.last_index):
        with pytest.raises(ScenarioFailed, match="which only the disks of") as caught:
            run_state_machine_as_test(Impatient, settings=found)
        [lines] = [note for note in caught.value.__notes__ if note.startswith("\nmembers")]
        # What is printed is a scenario itself, and it fails in the same way.
        with pytest.raises(ScenarioFailed, match="which only the disks of"):
            replayed(lines)
    replayed(lines)
