"""The errors of a refused change of the group. A refused change has no effect."""

from __future__ import annotations

from dledger.errors import Rejected


class ChangeRefused(Rejected):
    """The change of the configuration was refused, and the configuration is unchanged.

    A retry is safe, as after every Rejected. It succeeds only once the cause in the text is gone.
    """


class ConfigurationInvalid(ChangeRefused):
    """A configuration contradicts itself, or is over a limit."""

    problem: str
    _template = "no valid configuration: {problem}"


class ConfigurationMoved(ChangeRefused):
    """The change was made for another configuration than the one in force.

    `expected` and `present` are the indexes of the entries that brought the two.
    """

    expected: int
    present: int
    _template = (
        "the change was made for configuration {expected}, but {present} is in force: look at the "
        "members again, then decide"
    )


class GrowthNotNoted(ChangeRefused):
    """The group may not grow, because its only first member has not noted outside of its data
    folder that it grows. With an empty disk it would begin the group anew, beside the others.

    `problems` are the places where the note could not be written, with the reasons.
    """

    problems: list[str]

    def _text(self) -> str:
        why = "; ".join(self.problems) or "it was not tried"
        return (
            "the first member of this group cannot note outside of its data folder that the group "
            f"grows ({why}). Without the note it would begin a second group if it lost its disk. "
            "Let it write to one of these folders (XDG_STATE_HOME names another), or start it "
            "with --join from now on"
        )


class ChangePending(ChangeRefused):
    """An earlier change may be under way. Entry `index`, which is that change or the entry that
    opens this leader's term, must be committed first.
    """

    index: int
    _template = (
        "another change may be under way: wait until entry {index} is committed, then try again"
    )


class AlreadyJoint(ChangeRefused):
    """The configuration is joint: the previous change must end first."""

    _template = "the previous change has not ended: leave the joint configuration first"


class NotJoint(ChangeRefused):
    """There is no joint configuration to leave."""

    _template = "the configuration is not joint: there is nothing to leave"


class NoVoters(ChangeRefused):
    """A group needs a voter, before the change and after it."""

    _template = "the group would have no voter, or has none yet: keep or add at least one"


class TooManyVotersChanged(ChangeRefused):
    """Without a joint phase only one voter may change, so that the two majorities overlap."""

    changed: int
    _template = "{changed} voters change at once: use a joint change, or one at a time"


class MemberUnknown(ChangeRefused):
    """The change names a member that the group does not have."""

    member: str
    _template = "{member!r} is not a member: name a member, or add this one with its address"


class NotAStep(ChangeRefused):
    """No single change leads from the one configuration to the other."""

    before: str
    after: str
    _template = "no single change leads from {before} to {after}: make a joint change first"


class LearnerStalled(ChangeRefused):
    """A learner that should become a voter no longer makes progress: it acknowledges neither
    entries nor bytes of a snapshot. `waits_for` says what it has and lacks.
    """

    member: str
    lag_entries: int
    waits_for: str
    _template = (
        "{member} makes no progress and lacks {lag_entries} entries: it {waits_for}; check that it "
        "runs and can be reached at its address, then try again"
    )


class VoterInDoubt(ChangeRefused):
    """The group would depend on a member that is new or lost data. Such a member does not count
    until it holds everything that it may have promised.
    """

    member: str
    _template = (
        "{member} is new or lost data, so it does not count yet: let it catch up, then change the "
        "group"
    )


class VotersSilent(ChangeRefused):
    """Too many voters of the new configuration have not answered the leader yet."""

    members: list[str]

    def _text(self) -> str:
        return (
            f"the new group needs {', '.join(self.members)} to decide, and the leader has not "
            "heard from them: start them first, or leave them out"
        )


class LearnerBehind(ChangeRefused):
    """A learner lacks too much of the log: as a voter it would delay every commit."""

    member: str
    lag_entries: int
    _template = "{member} lacks {lag_entries} entries: let it catch up, then promote it"
