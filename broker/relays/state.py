"""The address at which the leader accepts relayed clients."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from broker.log.state import Rows, StatePart


@dataclass(slots=True)
class LeaderPlace:
    """The announcement of the newest leader, in groups with one address.

    Attributes:
        node_id: the member; "" before the first.
        address: "host:port" at which it serves.
    """

    node_id: str = ""
    address: str = ""


def _captured(place: LeaderPlace) -> Iterator[object]:
    return iter([place.node_id, place.address] if place.node_id else [])


def _take(place: LeaderPlace, rows: list[Any]) -> None:
    place.node_id, place.address = map(str, rows)


LEADER_PLACE: Final = StatePart(
    "leader place", LeaderPlace, rows=(Rows("leader place", _captured, _take),)
)
