"""Hands leadership to another voter (Raft thesis 3.10): bring it up to date, then let it stand.

While a transfer runs the leader accepts no proposals, so the target catches up with a log that does
not grow. Once the target has all entries, the leader tells it to stand at once. The leader gives up
one election timeout after the beginning, and goes on leading. A message that arrives later does no
harm: the target needs the votes of a quorum like any candidate, and only a complete log gets them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from dledger.core.entry_dispatcher import EntryDispatcher
from dledger.errors import TransferFailed


class LeaderTransfer:
    """One transfer, on the leader. `end` says why it was given up; it is None while it runs."""

    __slots__ = ("deadline", "end", "last_index", "target", "tell_at")

    def __init__(self, target: str, last_index: int, deadline: float) -> None:
        self.target = target
        self.last_index = last_index  # the log's end, which is fixed during the transfer
        self.deadline = deadline
        self.end: str | None = None
        self.tell_at = float("-inf")

    def must_tell(self, match_index: int, now: float, repeat_s: float) -> bool:
        """Whether to tell the target now to stand: it has all entries, and was not told within the
        last `repeat_s` seconds. Telling it again covers a lost message.
        """
        if match_index < self.last_index or now < self.tell_at:
            return False
        self.tell_at = now + repeat_s
        return True

    def hopeless(self, voters: Container[str], now: float) -> str | None:
        """Return why the leader must give up, if it must."""
        if self.target not in voters:
            return "it is no longer a voter"
        if now >= self.deadline:
            return "it did not take over within an election timeout"
        return None


def choose_target(
    wanted: str | None,
    dispatchers: Mapping[str, EntryDispatcher],
    now: float,
    timeout_s: float,
) -> str:
    """The voter to hand leadership to: `wanted`, or else the voter with the longest log among those
    that answered within the last `timeout_s` seconds.

    Raises TransferFailed if `wanted` is not another voter or is in doubt, or if no voter answers.
    """
    if wanted is not None:
        if wanted not in dispatchers:
            raise TransferFailed(wanted, f"it is not one of the other voters {list(dispatchers)}")
        if not dispatchers[wanted].proven:
            raise TransferFailed(wanted, "it lost its data and has not caught up yet")
        return wanted
    alive = [d for d in dispatchers.values() if d.proven and now - d.last_answer_at < timeout_s]
    if not alive:
        raise TransferFailed(None, "no other voter answers")
    return max(alive, key=lambda d: (d.match_index, d.last_answer_at, d.peer)).peer
