"""Why a change of the members was refused: nothing happened."""

from __future__ import annotations

from dledger.errors import Rejected


class ChangeRefused(Rejected):
    """The change of the configuration cannot be made; the configuration is what it was.

    Safe to try again like every Rejected, but only of use once what the text names is different.
    """


class ConfigurationInvalid(ChangeRefused):
    """A configuration contradicts itself, or is over a limit."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"no valid configuration: {problem}")


class ConfigurationMoved(ChangeRefused):
    """The change was made for another configuration than the present one.

    `expected` and `present` are the indexes of the entries that brought them.
    """

    def __init__(self, expected: int, present: int) -> None:
        self.expected = expected
        self.present = present
        super().__init__(
            f"the change is for configuration {expected}, the present one is {present}: "
            "look at the members again, and decide anew"
        )


class ChangePending(ChangeRefused):
    """An earlier change may be on its way: it, or the entry that opens this leader's term, must
    be committed first. `index` is how far.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(
            f"another change may be on its way: wait until entry {index} is committed, "
            "then try again"
        )


class AlreadyJoint(ChangeRefused):
    """The configuration has two halves: the change before has to end first."""

    def __init__(self) -> None:
        super().__init__("the change before has not ended: leave the joint configuration first")


class NotJoint(ChangeRefused):
    """There is no joint configuration to leave."""

    def __init__(self) -> None:
        super().__init__("the configuration is not joint: there is nothing to leave")


class NoVoters(ChangeRefused):
    """A group needs a voter, before the change and after it."""

    def __init__(self) -> None:
        super().__init__("no voter is left, or there is none yet: keep or add at least one")


class TooManyVotersChanged(ChangeRefused):
    """A change without a joint phase may add or remove one voter: two majorities overlap then."""

    def __init__(self, changed: int) -> None:
        self.changed = changed
        super().__init__(f"{changed} voters change at once: use a joint change, or one at a time")


class MemberUnknown(ChangeRefused):
    """The change names somebody who is not a member."""

    def __init__(self, member: str) -> None:
        self.member = member
        super().__init__(
            f"{member!r} is not a member: name one that is, or add it with its address"
        )


class NotAStep(ChangeRefused):
    """No single change leads from the one configuration to the other."""

    def __init__(self, before: str, after: str) -> None:
        self.before = before
        self.after = after
        super().__init__(
            f"no single change leads from {before} to {after}: go by way of a joint one"
        )


class LearnerStalled(ChangeRefused):
    """A learner that was to become a voter takes nothing of the log any more."""

    def __init__(self, member: str, lag_entries: int) -> None:
        self.member = member
        self.lag_entries = lag_entries
        super().__init__(
            f"{member} takes nothing any more and lacks {lag_entries} entries: check that it runs "
            "and can be reached at its address, then try again"
        )


class VoterInDoubt(ChangeRefused):
    """A group would depend on a member that is new or lost data, and does not count before it holds
    all that it can have promised.
    """

    def __init__(self, member: str) -> None:
        self.member = member
        super().__init__(
            f"{member} is new or lost data, so it does not count yet: let it catch up, then change "
            "the group"
        )


class VotersSilent(ChangeRefused):
    """Too many voters of the group that would be have not answered the leader yet."""

    def __init__(self, members: list[str]) -> None:
        self.members = members
        super().__init__(
            f"the group could decide nothing without {', '.join(members)}, of whom the leader has "
            "heard nothing: start them first, or leave them out"
        )


class LearnerBehind(ChangeRefused):
    """A learner that lacks too much of the log would be a voter who holds up every commit."""

    def __init__(self, member: str, lag_entries: int) -> None:
        self.member = member
        self.lag_entries = lag_entries
        super().__init__(f"{member} lacks {lag_entries} entries: let it catch up, then promote it")
