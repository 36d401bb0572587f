"""Decides on the leader which part of the log is dropped, and drops files of consume queues.

The decision is an entry of the log (`KeepLogFrom`): the leader checks the clock, the disk and the
ages that the fold has marked, and every member carries out the same. The log's files go when the
snapshots allow it, and the consume queues' files when their messages are gone. An operator may
request a check (27, 306, 329; source: RocketMQ's AdminBrokerProcessor).
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from broker.errors import RequestRefused
from broker.log.submissions import submit_commands
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets
from broker.retention.commands import KeepLogFrom
from broker.retention.full_disk import FULL_DISK
from broker.retention.kept_back import KEPT_BACK
from broker.retention.policy import Drop, RetentionPolicy
from broker.serving.member import MEMBER
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.settings.settings import SETTINGS
from dledger import DiskFailed, OutsideLog, SegmentBegin
from dledger.waits.blocking_work import in_a_thread
from dledger.wake_up import WakeUp
from remoting.wire.command import Command
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# The pause between two checks; RocketMQ's value.
LOOK_S: Final = 10.0

# The pause while messages are refused, so that they are accepted soon after files went.
FULL_LOOK_S: Final = 1.0

# Requests that wait for a check; each operator has one or two.
_MAX_ASKED: Final = 100

# Queues whose files are checked between two checkpoints, in some milliseconds.
_QUEUES_AT_ONCE: Final = 50


class LogKeeper:
    """One member's retention.

    `is_deciding`: whether a decision is in flight.
    """

    def __init__(self, parts: Parts) -> None:
        member, disk = parts[MEMBER], parts[FULL_DISK]
        self._member = member
        self._node = member.node
        self._machine = member.machine
        self._messages = member.machine.state[MESSAGES]
        self._disk = disk
        disk.has_no_room = lambda: member.node.disk_short is not None
        self._kept_back = parts[KEPT_BACK]
        self._settings = parts[SETTINGS]
        self._directory = parts.config.directory
        self._led_term = parts.led_term
        self._wall_clock_ms = parts.wall_clock_ms
        self.is_deciding = False
        self._applied = -1  # at the last check that decided nothing
        self._queues_kept_from = 0  # log position up to which consume queue files were removed
        self._woken = WakeUp()
        self._told_when_decided: list[Callable[[], None]] = []
        self._drops_soon = False
        self._asked: list[Callable[[], None]] = []  # called when a check is done

    async def run(self) -> None:
        """Check clock and disk, forever."""
        while True:
            await self.look()
            is_full = self._disk.is_refusing or self._disk.has_no_room()
            with trio.move_on_after(FULL_LOOK_S if is_full else LOOK_S):
                await self._woken.wait()

    def drop_expired(self, origin: Origin, command: Command) -> None:
        """Drop expired messages at any hour (27, 329). The reply leaves once that is decided; the
        files go soon after, when snapshots allow it.

        Raises RequestRefused (2): too many wait for it.
        """
        self.look_soon(lambda: origin.send(command.reply()), drops=True)

    def clean_queues(self, origin: Origin, command: Command) -> None:
        """Remove files of consume queues whose messages are gone (306).

        Raises RequestRefused (2): too many wait for it.
        """
        self.look_soon(lambda: origin.send(command.reply()), drops=False)

    def look_soon(self, then: Callable[[], None], *, drops: bool) -> None:
        """Check now; call `then` when the decision is applied. With `drops`, at any hour expired
        messages go.

        Raises RequestRefused (2): too many wait for it.
        """
        if len(self._asked) >= _MAX_ASKED:
            raise RequestRefused.busy(f"{len(self._asked)} wait for retention: ask later")
        self._asked.append(then)
        self._drops_soon |= drops
        self._woken.set()

    async def look(self) -> None:
        """Check once: refuse messages or not, decide on the leader, remove files."""
        asked, self._asked = self._asked, []
        drops, self._drops_soon = self._drops_soon, False
        if asked:
            self._queues_kept_from = 0  # an earlier removal may have failed
        try:
            used = await in_a_thread(self._member.used_percent, self._directory)
        except OSError as error:
            _log.warning("how full the disk is cannot be told: %s", quoted(error))
            used = 0.0
        policy = self._settings.now.retention
        self._refuse(policy.refuses(used), used)
        now_ms = self._wall_clock_ms()
        if self._led_term() is not None and not self.is_deciding:
            drop = policy.due(used, self._member.hour_of(now_ms))
            if self._disk.has_no_room() and policy.drops_oldest:
                drop = Drop.OLDEST
            if drops and drop is Drop.NOTHING:
                drop = Drop.EXPIRED
            self._decide(policy, drop, now_ms)
        await self._remove_queue_files()
        if self.is_deciding:
            self._told_when_decided += asked
        else:
            _call(asked)

    def _refuse(self, is_refusing: bool, used: float) -> None:
        if is_refusing != self._disk.is_refusing:
            words = "no message is taken" if is_refusing else "messages are taken again"
            _log.warning("%.1f %% of the disk are used: %s", used, words)
        self._disk.is_refusing = is_refusing

    # --- the log ------------------------------------------------------------------------------

    def _decide(self, policy: RetentionPolicy, drop: Drop, now_ms: int) -> None:
        messages = self._messages
        begin = None
        if drop is not Drop.NOTHING:
            expired_at_ms = policy.expired_at_ms(now_ms)
            begin = self._segment_of(messages.time_marks.first_since(expired_at_ms))
        if begin is None and drop is Drop.OLDEST:
            begin = self._second_segment()
        if begin is None:
            if drop is not Drop.NOTHING:
                self._nudge(now_ms)
            return
        needed_from = self._machine.state.needed_from()
        if needed_from is not None and needed_from < begin.pos:
            self._kept_back.move_before(begin.pos)  # a later check drops it
            return
        self.is_deciding = True
        command = KeepLogFrom(begin.first_index, begin.pos, now_ms)
        submit_commands(self._node, [command], self._proposed)

    def _nudge(self, now_ms: int) -> None:
        """Append an entry without effect, if files could go and no other entry arrives.

        A file goes when two snapshots cover it, and each is of another entry: see SnapshotPolicy.
        """
        applied, self._applied = self._applied, self._node.status().applied
        waits = self._node.begin_position < self._messages.kept_position
        if waits and self._applied == applied:
            self.is_deciding = True
            submit_commands(self._node, [CommitOffsets((), now_ms)], self._proposed)

    def _proposed(self, refusal: RequestRefused | None) -> None:
        self.is_deciding = False
        told, self._told_when_decided = self._told_when_decided, []
        _call(told)
        if refusal is not None:
            _log.warning("retention is decided again later: %s", quoted(refusal.remark))

    def _segment_of(self, index: int) -> SegmentBegin | None:
        """Return the segment of an entry, if something before it is still kept."""
        if index <= self._messages.kept_from:
            return None
        try:
            begin = self._node.segment_begin(index)
        except OutsideLog:
            return None  # the log begins later already
        return begin if begin.first_index > self._messages.kept_from else None

    def _second_segment(self) -> SegmentBegin | None:
        """Return the second segment on the disk, unless the first is dropped already.

        Files go when there are snapshots after them. Until then the disk does not show the effect
        of the last decision.
        """
        status = self._node.status()
        first, low, high = status.first_index, status.first_index, status.applied
        if self._node.segment_begin(high).first_index == first:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            if self._node.segment_begin(middle).first_index == first:
                low = middle
            else:
                high = middle
        return self._segment_of(high)

    # --- the consume queues -------------------------------------------------------------------

    async def _remove_queue_files(self) -> None:
        """Remove files with units before the first message that is kept; on every member."""
        position, queues = self._messages.kept_position, self._machine.queues
        if position == self._queues_kept_from or queues.damaged:
            return
        try:
            for at, (topic, queue_id) in enumerate(queues.keys()):
                queues.remove_files(topic, queue_id, position)
                if at % _QUEUES_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
        except DiskFailed as error:
            _log.warning("consume queue files stay: %s", quoted(error))
        self._queues_kept_from = position


def _call(all_of: list[Callable[[], None]]) -> None:
    for one in all_of:
        one()


LOG_KEEPER: Final = Shared("log keeper", LogKeeper)
