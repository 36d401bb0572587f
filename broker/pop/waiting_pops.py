"""Pops that wait for a message."""

from typing import TypeAlias

from broker.pop.limits import MAX_WAITING, MAX_WAITING_A_CLIENT
from broker.pop.request import PopRequest
from broker.serving.counts import Counts
from broker.serving.waiting_requests import Waiting, WaitingRequests

WaitingPop: TypeAlias = Waiting[PopRequest]
WaitingPops: TypeAlias = WaitingRequests[PopRequest, str]


def waiting_pops(users: Counts) -> WaitingPops:
    """Make room for pops, by topic and group."""
    return WaitingRequests(
        MAX_WAITING, MAX_WAITING_A_CLIENT, users, lambda request: (request.topic, request.group)
    )
