"""Checks on the messages sent that every candidate won a pre-vote before it started a term."""

from __future__ import annotations

from dledger.core.membership.configuration import Configuration
from dledger.core.messages import Message, VoteRequest, VoteResponse
from dledger.core.replica import Replica
from jepsen_like.simulation.group_history import is_quorum
from jepsen_like.simulation.witness import InvariantViolated


class Candidacies:
    def __init__(self) -> None:
        self._granted: dict[tuple[str, int], set[str]] = {}  # by candidate and term
        # The configuration of each candidate when it asked last for pre-votes.
        self._groups: dict[tuple[str, int], Configuration] = {}

    def released(self, name: str, peer: str, message: Message, replica: Replica) -> None:
        """Check a message that `name` sends: a vote request needs a quorum of granted pre-votes,
        unless a leader transferred leadership.
        """
        if isinstance(message, VoteResponse) and message.pre and message.granted:
            self._granted.setdefault((peer, message.term), set()).add(name)
        elif isinstance(message, VoteRequest) and message.pre:
            self._groups[name, message.term] = replica.state.membership.configuration
        elif isinstance(message, VoteRequest) and not message.handed_over:
            granted = self._granted.get((name, message.term), set()) | {name}
            # The candidate may have learnt of a newer configuration with the last answer.
            now = replica.state.membership.configuration
            group = self._groups.get((name, message.term), now)
            if not is_quorum(group, granted):
                raise InvariantViolated(
                    "candidates asked before",
                    f"{name} stands in term {message.term} with the pre-votes of {sorted(granted)}",
                )
