"""etcd's tables of configuration changes, run as data; see data/etcd-confchange/README.md.

Their members are numbers, and 0 is nobody. Their changer also keeps a progress for every member,
whose `next` says by which command of the table it was made: the tables show that changing what a
member is never begins its progress anew. Ours keeps none, so the runner does, by the rule that a
leader follows with its dispatchers: begin what is new, keep what stays, drop what is gone.
"""

import re
from pathlib import Path

import pytest

from dledger.core.membership.change_errors import (
    AlreadyJoint,
    ChangeRefused,
    MemberUnknown,
    NotJoint,
    NoVoters,
    TooManyVotersChanged,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Remove,
    UpdateAddress,
    check_step,
    enter_joint,
    leave_joint,
    simple,
)
from tests.dledger.core.etcd_tables import Case, read_table, tables

REFUSALS: dict[str, type[ChangeRefused]] = {
    "config is already joint": AlreadyJoint,
    "can't apply simple config change in joint config": AlreadyJoint,
    "can't leave a non-joint config": NotJoint,
    "can't make a zero-voter config joint": NoVoters,
    "removed all voters": NoVoters,
    "more than one voter changed without entering joint config": TooManyVotersChanged,
}
SHOWN = re.compile(
    r"voters=\(([^)]*)\)(?:&&\(([^)]*)\))?"
    r"(?: learners=\(([^)]*)\))?(?: learners_next=\(([^)]*)\))?( autoleave)?"
)
SHOWN_MEMBER = re.compile(r"(\d+): StateProbe match=0 next=(\d+)( learner)?")


def address_of(member: str) -> str:
    return f"10.0.0.{member}:20911"


def changes_of(case: Case) -> list[Change]:
    changes: list[Change] = []
    for word in case.input.split():
        kind, member = word[0], word[1:]
        if member == "0":
            continue
        address = address_of(member)
        made: dict[str, Change] = {
            "v": AddVoter(member, address),
            "l": AddLearner(member, address),
            "r": Remove(member),
            "u": UpdateAddress(member, address),
        }
        changes.append(made[kind])
    return changes


def run(case: Case, configuration: Configuration) -> Configuration:
    changes = changes_of(case)
    if case.command == "simple":
        return simple(configuration, changes)
    if case.command == "enter-joint":
        auto_leave = case.arguments.get("autoleave") == ["true"]
        return enter_joint(configuration, changes, auto_leave=auto_leave)
    assert case.command == "leave-joint"
    assert not changes
    return leave_joint(configuration)


def without_strangers(case: Case, configuration: Configuration) -> Case:
    """etcd passes over an update of a stranger. Here it is refused: it is a slip of somebody's."""
    words = case.input.split()
    known = [
        w for w in words if w[0] != "u" or w[1:] in configuration.members or "v" + w[1:] in words
    ]
    if known != words:
        with pytest.raises(MemberUnknown):
            run(case, configuration)
    return case._replace(input=" ".join(known))


def shown_configuration(line: str) -> Configuration:
    found = SHOWN.fullmatch(line)
    assert found, line
    voters, outgoing, learners, learners_next = (
        frozenset((group or "").split()) for group in found.groups()[:4]
    )
    members = voters | outgoing | learners
    return Configuration(
        voters=voters,
        outgoing=outgoing,
        learners=learners,
        learners_next=learners_next,
        auto_leave=bool(found[5]),
        addresses={member: address_of(member) for member in members},
    )


def test_all_tables_of_etcd_are_here() -> None:
    counts = {path.stem: len(read_table(path)) for path in tables("etcd-confchange")}
    assert counts == {
        "joint_autoleave": 4,
        "joint_idempotency": 3,
        "joint_learners_next": 3,
        "joint_safety": 15,
        "simple_idempotency": 11,
        "simple_promote_demote": 7,
        "simple_safety": 11,
        "update": 3,
        "zero": 1,
    }


@pytest.mark.parametrize("table", tables("etcd-confchange"), ids=lambda path: path.stem)
def test_a_configuration_changes_as_in_etcd(table: Path) -> None:
    configuration = Configuration()
    began: dict[str, int] = {}  # the command that made each member's progress
    for number, written in enumerate(read_table(table)):
        where = f"{table.name}:{written.line}"
        case = without_strangers(written, configuration)
        if case.expected[0] in REFUSALS:
            with pytest.raises(REFUSALS[case.expected[0]]):
                run(case, configuration)
            assert len(case.expected) == 1, where
            continue
        after = run(case, configuration)
        check_step(configuration, after)
        configuration = after
        began = {m: began.get(m, max(number, 1)) for m in configuration.members}
        assert configuration == shown_configuration(case.expected[0]), where
        shown = [SHOWN_MEMBER.fullmatch(line) for line in case.expected[1:]]
        members = {m[1]: (int(m[2]), bool(m[3])) for m in shown if m}
        assert len(members) == len(case.expected) - 1, where
        assert members == {
            member: (began[member], member in configuration.learners)
            for member in configuration.members
        }, where
