"""Gathers offsets, and commits them by one entry at a time.

An offset of a request goes into the log at once, because a client waits for the answer. No client
waits for the offsets that pulls carry. An entry for each would make every member write and sync for
each pull, so they go with the next entry, and five times a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.errors import RequestRefused
from broker.groups.state import GROUPS
from broker.log.submissions import Then, submit_commands
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.serving.parts import Parts, Shared
from broker.topics.state import TOPICS

# If none of their groups and topics had offsets before, folding so many takes ten milliseconds.
MAX_OFFSETS_PER_ENTRY = 512


@dataclass(slots=True)
class _Waiting:
    """Offsets for the next entry, and the requests that wait for them.

    Attributes:
        offsets: by group, topic and queue: the offset, and up to which position the log was applied
            at its request.
        brought: the keys that came with pulls.
    """

    offsets: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    brought: set[tuple[str, str, int]] = field(default_factory=set)
    thens: list[Then] = field(default_factory=list)


class OffsetCommits:
    def __init__(self, parts: Parts) -> None:
        self._log = parts.log
        self._state = parts.state
        self._max_waiting = parts.config.limits.max_waiting_commits
        self._wall_clock_ms = parts.wall_clock_ms
        self._work = parts.work
        self._waiting = _Waiting()
        self._is_in_flight = False

    @property
    def is_full(self) -> bool:
        waiting = self._waiting
        return max(len(waiting.thens), len(waiting.offsets)) >= self._max_waiting

    def add(self, offset: CommittedOffset, then: Then | None) -> None:
        """Commit an offset: soon if `then` waits for it. Callers check `is_full` first."""
        self._waiting.offsets[offset[:3]] = offset.offset, self._state.log_end
        self._waiting.brought.discard(offset[:3])
        if then is not None:
            self._waiting.thens.append(then)

    def bring(self, offset: CommittedOffset) -> None:
        """Commit an offset that came with a pull, if its group still exists then. Callers check
        `is_full`.
        """
        # If a request waits for the queue's offset, it is committed even without the group.
        waiting, key = self._waiting, offset[:3]
        was_asked_for = key in waiting.offsets and key not in waiting.brought
        self.add(offset, None)
        if not was_asked_for:
            waiting.brought.add(key)

    def forget(self, group: str, topic: str, queue_id: int) -> None:
        """Drop a waiting offset, which was committed before the group was reset."""
        self._waiting.offsets.pop((group, topic, queue_id), None)

    def flush(self) -> None:
        """Append the gathered offsets if a client waits or an entry is full, unless an entry is in
        flight.
        """
        waiting = self._waiting
        if waiting.thens or len(waiting.offsets) >= MAX_OFFSETS_PER_ENTRY:
            self.flush_all()

    def flush_all(self) -> None:
        """Append the gathered offsets unless an entry is in flight."""
        waiting = self._waiting
        if self._is_in_flight or not (waiting.offsets or waiting.thens):
            return
        self._waiting = _Waiting()
        self._is_in_flight = True
        state, topics, groups = self._state, self._state[TOPICS], self._state[GROUPS]
        # Without the offsets of topics that were deleted since the request.
        offsets = [
            CommittedOffset(*key, offset)
            for key, (offset, as_of) in waiting.offsets.items()
            if topics.existed(key[1], as_of)
            and (key not in waiting.brought or key[0] in groups.configs)
        ]
        now_ms = self._wall_clock_ms()
        commands = [
            CommitOffsets(offsets[at : at + MAX_OFFSETS_PER_ENTRY], now_ms, state.log_end)
            for at in range(0, len(offsets), MAX_OFFSETS_PER_ENTRY)
        ]

        def then(refusal: RequestRefused | None) -> None:
            self._is_in_flight = False
            self._tell(waiting.thens, refusal)
            self.flush()

        if commands:
            submit_commands(self._log, commands, then)
        else:
            then(None)

    def refuse_waiting(self, refusal: RequestRefused) -> None:
        """Refuse all requests whose offsets are not in flight."""
        waiting, self._waiting = self._waiting, _Waiting()
        self._tell(waiting.thens, refusal)

    def _tell(self, thens: Sequence[Then], refusal: RequestRefused | None) -> None:
        self._work.each("answers about offsets", thens, lambda then: then(refusal))


OFFSET_COMMITS: Final = Shared("offset commits", OffsetCommits)
