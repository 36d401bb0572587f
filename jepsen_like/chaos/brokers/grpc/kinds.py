"""All kinds of traffic that clients of gRPC make at once, each with a topic of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from jepsen_like.chaos.brokers.everything import Parts
from jepsen_like.chaos.brokers.grpc.messages import (
    GrpcDelayed,
    GrpcMessages,
    GrpcOrdered,
    GrpcTransactional,
)
from jepsen_like.chaos.brokers.grpc.settled import Settled
from jepsen_like.chaos.brokers.notes import Notes

GRPC_PARTS: Final[Mapping[str, type[GrpcMessages]]] = {
    "settled": Settled,
    "ordered": GrpcOrdered,
    "delay": GrpcDelayed,
    "transaction": GrpcTransactional,
}


class GrpcKinds(Parts):
    longest_wait_s = max(part.longest_wait_s for part in GRPC_PARTS.values())

    def __init__(self, notes: Notes, nameservers: Sequence[str], addresses: Sequence[str]) -> None:
        parts = {
            name: part(notes.of_part(name), nameservers, addresses, f"chaos-{name}")
            for name, part in GRPC_PARTS.items()
        }
        super().__init__(notes, nameservers, parts)
