"""The configuration in force on one member, the changes in its log, and the rules for the next one.

A configuration is in force on a member once that member knows its entry to be committed, in log
order. (etcd: on apply; the core need not wait for the state machine.) Three rules make this safe
(thesis 4.1 and 4.3):

* One change at a time: a leader proposes no change while its log holds an uncommitted one.
* A leader proposes no change before it has committed an entry of its own term, so it never passes
  over a change that an earlier leader could still complete.
* Every change names the configuration it was made for, by the index of its entry. A change that
  names another than the one in force is void, on every member alike.

The third rule also helps after a restart. Configurations two steps apart can decide without each
other, so a member whose log holds a change must not stand for election by the configuration of two
steps before, even if it forgot its commit index. The last change in the log prevents that: the
configuration it was made for was in force on its leader, and is therefore committed
(`known_committed`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from dledger.core.membership.change_errors import ChangePending, ChangeRefused, ConfigurationMoved
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
from dledger.errors import InvariantBroken

NO_MEMBERS = Configuration()


class ChangeOutcome(NamedTuple):
    """The outcome of the change at `index`: in force, or void for the reason in `refusal`."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    refusal: ChangeRefused | None


class _Uncommitted(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index
    entry: NumberedConfiguration


class Membership:
    """One member's knowledge of the group's configurations.

    `configuration` is the one in force. `index` is that of the entry that brought it, or
    BEFORE_FIRST_INDEX for the one that the group began with; a compare and set names it. `quorum`,
    `members` and `voting_members` cache those of the configuration. `uncommitted` holds the changes
    in the log that are not committed. `ever_members` holds the members of every configuration that
    was in force here: a removed member is in it, and one that has yet to join is not.
    """

    __slots__ = (
        "_history",
        "_term_began",
        "configuration",
        "ever_members",
        "index",
        "members",
        "quorum",
        "uncommitted",
        "voting_members",
    )

    def __init__(
        self,
        configuration: Configuration,
        index: int = BEFORE_FIRST_INDEX,
        began_with: Configuration = NO_MEMBERS,
    ) -> None:
        """`began_with`: the configuration that the group began with, if this member knows it and
        goes on from a later one.
        """
        self._history: list[NumberedConfiguration] = []
        self.uncommitted: deque[_Uncommitted] = deque()
        self._term_began = BEFORE_FIRST_INDEX
        self.ever_members = began_with.members
        self._take(index, configuration)

    # --- the log, on every member -------------------------------------------------------------

    def appended(self, index: int, entry: NumberedConfiguration) -> None:
        """Note a change at `index` in this member's log, appended now or found at the start.

        Raises InvariantBroken unless `index` is behind the last change.
        """
        last = self.uncommitted[-1].index if self.uncommitted else self.index
        if index <= last:
            raise InvariantBroken(f"a change at {index}, not behind the one at {last}")
        self.uncommitted.append(_Uncommitted(index, entry))

    def truncated_after(self, index: int) -> None:
        """Forget the changes behind `index`, where this member's log was cut.

        Raises InvariantBroken if that cuts the configuration in force.
        """
        if index < self.index:
            raise InvariantBroken(f"cut at {index}, before the configuration {self.index} in force")
        while self.uncommitted and self.uncommitted[-1].index > index:
            self.uncommitted.pop()

    def committed_to(self, index: int) -> Sequence[ChangeOutcome]:
        """Decide the changes up to `index`, which are known to be committed; return the outcomes.

        Whether a change is void follows from the log alone, so every member comes to the same
        result. No change is void as long as leaders keep the rules above.
        """
        if not self.uncommitted or self.uncommitted[0].index > index:
            return ()
        outcomes = []
        while self.uncommitted and self.uncommitted[0].index <= index:
            outcomes.append(self._decide(*self.uncommitted.popleft()))
        return outcomes

    @property
    def known_committed(self) -> int:
        """The commit index that follows from the changes in the log: see the module's docstring."""
        return max((entry.index for _, entry in self.uncommitted), default=self.index)

    @property
    def is_settled(self) -> bool:
        """Whether no change is under way, as far as this member's log shows."""
        return not self.uncommitted and not self.configuration.is_joint

    def _decide(self, index: int, entry: NumberedConfiguration) -> ChangeOutcome:
        if entry.index != self.index:
            return ChangeOutcome(index, ConfigurationMoved(entry.index, self.index))
        try:
            # The configuration that a group began with is in its members' settings, but not in
            # those of a member that joins later. The outcome must follow from the log alone, so the
            # first change is accepted unchecked.
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
        self.ever_members |= self.members
        self.voting_members = configuration.voting_members
        self._history.append(NumberedConfiguration(index, configuration))

    # --- as a leader --------------------------------------------------------------------------

    def elected(self, term_began: int) -> None:
        """Note that this member leads; `term_began` is the index of the no-op of its term."""
        self._term_began = term_began

    def propose(
        self,
        changes: Sequence[Change],
        committed: int,
        *,
        transition: Transition = Transition.AUTO,
        expected: int | None = None,
    ) -> NumberedConfiguration:
        """Return the change to append as an entry of magic 3. The caller then calls `appended`.

        `committed` is this leader's commit index. `expected` is the index of the configuration that
        the changes were made for; None accepts the one in force.

        Raises ChangePending, ConfigurationMoved, AlreadyJoint, NoVoters, MemberUnknown or
        ConfigurationInvalid.
        """
        self._check_free(committed)
        if expected is not None and expected != self.index:
            raise ConfigurationMoved(expected, self.index)
        return NumberedConfiguration(self.index, change(self.configuration, changes, transition))

    def propose_leave(self, committed: int) -> NumberedConfiguration:
        """Return the change to append to end a joint phase. Raises ChangePending or NotJoint."""
        self._check_free(committed)
        return NumberedConfiguration(self.index, leave_joint(self.configuration))

    def leave_due(self, committed: int) -> bool:
        """Return whether the leader must end a joint phase now. Leaders check this at every tick,
        so a new leader ends a phase that its predecessor began. It is False while the end is
        uncommitted.
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
        """Return the configuration for a snapshot of the state after the entry `index`.

        Raises InvariantBroken if it was forgotten.
        """
        found = bisect_right(self._history, index, key=lambda numbered: numbered.index)
        if not found:
            raise InvariantBroken(f"the configuration at {index} is forgotten")
        return self._history[found - 1]

    def forget_before(self, index: int) -> None:
        """Forget older configurations than the one in force at `index`; `at` needs no others."""
        keep = bisect_right(self._history, index, key=lambda numbered: numbered.index) - 1
        del self._history[: max(keep, 0)]

    def restarted(self, group: NumberedConfiguration | None) -> None:
        """Go on from a snapshot for which the log is dropped; `group` is in force at its last
        entry.

        None means the configuration that the group began with. Uncommitted changes of the dropped
        log are forgotten: those that the leader's log holds as well are in `group`, or come again.
        """
        began = group is None or group.index == BEFORE_FIRST_INDEX
        if group is None or (began and self.configuration.voters):
            self.uncommitted.clear()  # the settings hold the first configuration
        else:
            self.install(group)

    def install(self, snapshot: NumberedConfiguration) -> None:
        """Go on from the configuration of a snapshot that replaces the whole log.

        Raises InvariantBroken if it is older than the one in force.
        """
        if snapshot.index < self.index:
            raise InvariantBroken(
                f"a snapshot with configuration {snapshot.index}, older than {self.index}"
            )
        self._history.clear()
        self.uncommitted.clear()
        self._take(*snapshot)
