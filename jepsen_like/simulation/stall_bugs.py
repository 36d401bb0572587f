"""Bugs planted on purpose: a member's own lateness is taken for the silence of others, or the other
way round.
"""

from __future__ import annotations

from dledger.core.patience import Patience
from dledger.core.replica_config import ReplicaConfig
from dledger.node.turn import Turn
from jepsen_like.simulation.seeded_bug import Replacement, SeededBug


def _stall_taken_for_silence() -> list[Replacement]:
    def look(self: Patience, now: float) -> None:
        self._looked_at = now
        self.next_look_at = now + self._interval_s

    return [Replacement(Patience, "look", look)]


def _leader_gives_up_early() -> list[Replacement]:
    silence_s = property(lambda self: self.election_timeout_s)
    return [Replacement(ReplicaConfig, "quorum_silence_s", silence_s)]


def _lease_extended_by_a_stall() -> list[Replacement]:
    turned = Turn.turn

    def turn(self: Turn, now: float) -> float:
        before_s = self._patience.lost_s
        self._patience.look(now)
        lease, late_s = self._replica.lease, self._patience.lost_s - before_s
        if lease is not None and late_s:
            lease._until = {name: until + late_s for name, until in lease._until.items()}
        return turned(self, now)

    return [Replacement(Turn, "turn", turn)]


STALL_BUGS = (
    SeededBug(
        "stall-taken-for-silence",
        "a member that was late counts that time as the silence of others",
        _stall_taken_for_silence,
    ),
    SeededBug(
        "leader-gives-up-early",
        "a leader gives up before the last of its followers would stand",
        _leader_gives_up_early,
    ),
    SeededBug(
        "lease-extended-by-a-stall",
        "a leader that was late takes its lease to last longer by that time",
        _lease_extended_by_a_stall,
    ),
)
