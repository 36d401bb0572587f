"""Pulls that wait for a message."""

from typing import Final, TypeAlias

from broker.pulls.request import PullRequest
from broker.serving.counts import Counts
from broker.serving.parts import Shared
from broker.serving.waiting_requests import Waiting, WaitingRequests
from broker.settings.user_shares import USER_SHARES

# A client pulls each of its queues once; a topic has 1024 at most.
MAX_HELD_PULLS_A_CLIENT: Final = 10_000

# The hashes of so many tags take as much memory as a pull; most consumers have fewer tags.
_CODES_PER_WEIGHT: Final = 16

HeldPull: TypeAlias = Waiting[PullRequest]
HeldPulls: TypeAlias = WaitingRequests[PullRequest, int]


def held_pulls(limit: int, users: Counts) -> HeldPulls:
    """Make room for pulls, by topic and queue."""
    return WaitingRequests(
        limit,
        MAX_HELD_PULLS_A_CLIENT,
        users,
        lambda request: (request.topic, request.queue_id),
        lambda request: 1 + len(request.wanted.codes or ()) // _CODES_PER_WEIGHT,
    )


HELD_PULLS: Final = Shared(
    "held pulls",
    lambda parts: held_pulls(parts.config.limits.max_held_pulls, parts[USER_SHARES].held),
)
