"""The settings of the process of the clients: a file in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ClientSettings:
    """The clients of a run.

    Args:
        peers: host:port of each member as clients reach its node.
        ports: host:port of each member as clients reach its port for clients.
        readers: clients that only read, each bound to one member.
        writers: clients that make all other calls.
        calls_a_second: of each client, at most.
        begin_ns: the reading of the monotonic clock that the history calls 0.
        header: the header of the history.
        ports_only: whether clients reach members at their ports alone, and have no sessions:
            members of another system have no more.
    """

    seed: int
    service: str
    group: str
    peers: Mapping[str, str]
    ports: Mapping[str, str]
    readers: int
    writers: int
    calls_a_second: float
    timeout_s: float
    begin_ns: int
    history: str
    header: Mapping[str, object]
    ports_only: bool = False
