"""The configuration in force on one member, the changes in its log, and the rules for the next one.

A configuration is in force on a member once that member knows its entry to be committed, in log
order. (etcd: on apply; the core need not wait for the state machine.) Three rules make this safe
(thesis 4.1 and 4.3):

* One change at a time: a leader proposes none while there is one in its log that is not committed.
* A leader proposes none before an entry of its own term is committed, so it never passes over a
  change that an earlier leader could still complete.
* Every change names the configuration it was made for, by the index of its entry. One that names
  another than the one in force is void, on every member alike.

The third also serves after a restart. Configurations two steps apart can decide without each other,
so a member whose log holds a change must not stand for election by what was in force two steps
before, even if it forgot how far the log was committed. The last change in the log tells: what it
was made for was in force on its leader, and so committed (`known_committed`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from dledger.core.membership.change_errors import (
    ChangePending,
    ChangeRefused,
    ConfigurationMoved,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    Change,
    Transition,
    change,
    check_step,
    leave_joint,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import BEFORE_FIRST_INDEX
from dledger.errors import (
    InvariantBroken,
)


class ChangeOutcome(NamedTuple):
    """What became of the change at `index`: in force, or void for the reason in `refusal`."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    refusal: ChangeRefused | None


class _Uncommitted(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index
    entry: NumberedConfiguration


class Membership:
    """One member's knowledge of who belongs to the group.

    `index` is that of the entry that brought `configuration`, or BEFORE_FIRST_INDEX for the one the
    group began with; a compare and set names it. `quorum`, `members` and `voting_members` are the
    configuration's, made once. `uncommitted` are the changes in the log that are not decided.
    """

    __slots__ = (
        "_history",
        "_term_began",
        "configuration",
        "index",
        "members",
        "quorum",
        "uncommitted",
        "voting_members",
    )

    def __init__(self, configuration: Configuration, index: int = BEFORE_FIRST_INDEX) -> None:
        self._history: list[NumberedConfiguration] = []
        self.uncommitted: deque[_Uncommitted] = deque()
        self._term_began = BEFORE_FIRST_INDEX
        self._take(index, configuration)

    # --- the log, on every member -------------------------------------------------------------

    def appended(self, index: int, entry: NumberedConfiguration) -> None:
        """The log of this member holds a change at `index`; found there at its start, too."""
        last = self.uncommitted[-1].index if self.uncommitted else self.index
        if index <= last:
            raise InvariantBroken(f"a change at {index} behind the one at {last}")
        self.uncommitted.append(_Uncommitted(index, entry))

    def truncated_after(self, index: int) -> None:
        """The log of this member was cut: no entry behind `index` is left."""
        if index < self.index:
            raise InvariantBroken(f"cut at {index}, before the configuration {self.index} in force")
        while self.uncommitted and self.uncommitted[-1].index > index:
            self.uncommitted.pop()

    def committed_to(self, index: int) -> Sequence[ChangeOutcome]:
        """This member knows its log to be committed up to `index`: what that decides.

        Whether a change is void follows from the log alone, so every member comes to the same
        end. None ever is while leaders keep the rules above.
        """
        if not self.uncommitted or self.uncommitted[0].index > index:
            return ()
        outcomes = []
        while self.uncommitted and self.uncommitted[0].index <= index:
            outcomes.append(self._decide(*self.uncommitted.popleft()))
        return outcomes

    @property
    def known_committed(self) -> int:
        """How far the log must be committed, by the changes in it: see the text of the module."""
        return max((entry.index for _, entry in self.uncommitted), default=self.index)

    @property
    def is_settled(self) -> bool:
        """Whether this member's log holds no change that may be in force elsewhere already."""
        return not self.uncommitted and not self.configuration.is_joint

    def _decide(self, index: int, entry: NumberedConfiguration) -> ChangeOutcome:
        if entry.index != self.index:
            return ChangeOutcome(index, ConfigurationMoved(entry.index, self.index))
        try:
            # What a group began with is in its members' settings, and a newcomer's say nothing of
            # it. The outcome must follow from the log alone, so the first change is taken as it is.
            if self.index != BEFORE_FIRST_INDEX:
                check_step(self.configuration, entry.configuration)
        except ChangeRefused as refusal:
            return ChangeOutcome(index, refusal)
        self._take(index, entry.configuration)
        return ChangeOutcome(index, None)

    def _take(self, index: int, configuration: Configuration) -> None:
        self.index = index
        self.configuration = configuration
        self.quorum = configuration.quorum
        self.members = configuration.members
        self.voting_members = configuration.voting_members
        self._history.append(NumberedConfiguration(index, configuration))

    # --- as a leader --------------------------------------------------------------------------

    def elected(self, term_began: int) -> None:
        """This member leads now; `term_began` is the index of the no-op that opens its term."""
        self._term_began = term_began

    def propose(
        self,
        changes: Sequence[Change],
        committed: int,
        *,
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
    ) -> NumberedConfiguration:
        """What to append as an entry of magic 3 (and to tell to `appended`, as on any member).

        `committed` is this leader's commit index. `expected` is the index of the configuration
        that the changes were made for, None for whichever is in force.

        Raises ChangePending, ConfigurationMoved, AlreadyJoint, NoVoters, MemberUnknown or
        ConfigurationInvalid.
        """
        self._check_free(committed)
        if expected is not None and expected != self.index:
            raise ConfigurationMoved(expected, self.index)
        return NumberedConfiguration(self.index, change(self.configuration, changes, transition))

    def propose_leave(self, committed: int) -> NumberedConfiguration:
        """The end of a joint phase, to append. Raises ChangePending or NotJoint."""
        self._check_free(committed)
        return NumberedConfiguration(self.index, leave_joint(self.configuration))

    def leave_due(self, committed: int) -> bool:
        """Whether a leader has to end a joint phase now: to be asked in every turn, so that a new
        leader ends what its predecessor began, and nobody does it again while it is pending.
        """
        return (
            self.configuration.auto_leave and not self.uncommitted and committed >= self._term_began
        )

    def _check_free(self, committed: int) -> None:
        if self.uncommitted:
            raise ChangePending(self.uncommitted[-1].index)
        if committed < self._term_began:
            raise ChangePending(self._term_began)

    # --- snapshots ----------------------------------------------------------------------------

    def at(self, index: int) -> NumberedConfiguration:
        """The configuration that a snapshot of the state after the entry `index` must carry."""
        found = bisect_right(self._history, index, key=lambda numbered: numbered.index)
        if not found:
            raise InvariantBroken(f"the configuration at {index} is forgotten")
        return self._history[found - 1]

    def forget_before(self, index: int) -> None:
        """No snapshot before `index` will be asked for: keep what is in force there and later."""
        keep = bisect_right(self._history, index, key=lambda numbered: numbered.index) - 1
        del self._history[: max(keep, 0)]

    def restarted(self, group: NumberedConfiguration | None) -> None:
        """The log is dropped for a snapshot's sake: `group` is in force at its last entry.

        None for the one that the group began with. Changes that the log held and nobody decided
        are forgotten: those of them that are the leader's as well are in `group`, or come again.
        """
        began = group is None or group.index == BEFORE_FIRST_INDEX
        if group is None or (began and self.configuration.voters):
            self.uncommitted.clear()  # of what a group began with, the settings know best
        else:
            self.install(group)

    def install(self, snapshot: NumberedConfiguration) -> None:
        """Go on from a snapshot that replaces the whole log."""
        if snapshot.index < self.index:
            raise InvariantBroken(
                f"a snapshot with configuration {snapshot.index} behind {self.index}"
            )
        self._history.clear()
        self.uncommitted.clear()
        self._take(*snapshot)
