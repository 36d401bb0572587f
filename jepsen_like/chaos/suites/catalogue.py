"""The suites by the names that `jepsen-like suite` takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from jepsen_like.chaos.plan import CLIENT_DEFAULT, GRPC_CLIENT


class Row(NamedTuple):
    """One run of a suite.

    Attributes:
        workload: a name of `jepsen-like list`.
        nemeses: names of it, with commas between them.
        nodes: members of the group.
        lease: whether the leader answers reads by its lease.
        grown: whether the group begins with one member, and the others are added to it.
        client: what sends and consumes, of workloads with brokers.
    """

    workload: str
    nemeses: str
    nodes: int = 3
    lease: bool = False
    grown: bool = False
    client: str = CLIENT_DEFAULT


class Suite(NamedTuple):
    explanation: str
    rows: tuple[Row, ...]


class Planned(NamedTuple):
    """One run of a series: its number, which names its folder, and its seed."""

    number: int
    row: Row
    seed: int

    @property
    def name(self) -> str:
        return f"{self.number:04}-{self.row.workload}"


SUITES: dict[str, Suite] = {
    "chaos": Suite(
        "every workload, and every nemesis among them: twenty minutes",
        (
            Row("register", "kill,freeze,partition", 5),
            Row("register", "partition,loss,delay,reorder,duplicate", lease=True),
            Row("cas", "rolling,transfer,stop,partition"),
            Row("append", "kill,partition", 5),
            Row("set", "tail,flip,wipe,partition", 5),
            Row("set", "restore,swap,wipe"),
            Row("bank", "membership,partition"),
            Row("register", "empty,kill", grown=True),
            Row("set", "empty,partition", 5),
            Row("bank", "disk-full,kill"),
            Row("append", "power,kill"),
            Row("append", "fsync-slow,fsync-fails"),
            Row("delay", "clock,kill"),
            Row("lock", "freeze,partition"),
            Row("session-counter", "kill,freeze,partition,loss"),
            Row("queue", "kill,partition,delay"),
            Row("messages", "kill,freeze,partition"),
            Row("messages", "wipe,flip,disk-full"),
            Row("broadcast", "kill,freeze,partition"),
            Row("offset", "kill,power,partition"),
            Row("queue-lock", "kill,freeze,partition"),
            Row("messages", "name-server,clients,kill"),
            Row("messages", "silence,kill"),
            Row("session-counter", "silence,kill"),
            Row("ordered", "kill,freeze,partition"),
            Row("delay", "kill,freeze,partition"),
            Row("transaction", "kill,freeze,partition"),
            Row("pop", "kill,freeze,partition"),
            Row("everything", "kill,freeze,hostile"),
            Row("guarded", "certificates,users,kill,freeze"),
            Row("messages", "proxy,kill", client=GRPC_CLIENT),
            Row("grpc", "proxy,kill,freeze"),
        ),
    ),
    "partition": Suite(
        "links that are cut, slow, lossy, and twice: groups of three and five",
        (
            Row("register", "partition"),
            Row("register", "partition,kill", 5),
            Row("register", "partition,freeze", lease=True),
            Row("cas", "partition,transfer", 5),
            Row("append", "partition,loss", 5),
            Row("append", "loss,delay,reorder,duplicate"),
            Row("set", "partition,delay", 5),
            Row("bank", "partition,freeze"),
            Row("lock", "partition,loss"),
            Row("session-counter", "partition,duplicate,reorder"),
            Row("queue", "partition,kill", 5),
            Row("messages", "partition,loss"),
            Row("transaction", "partition,delay"),
        ),
    ),
    "disk": Suite(
        "power cuts; syncs that fail or last; torn, flipped and missing files; disks that are full",
        (
            Row("register", "power"),
            Row("session-counter", "power,partition", 5),
            Row("messages", "power,kill"),
            Row("register", "fsync-slow,partition"),
            Row("append", "fsync-fails,power"),
            Row("messages", "fsync-slow,fsync-fails"),
            Row("transaction", "power"),
            Row("register", "tail,kill"),
            Row("cas", "wipe,rolling"),
            Row("append", "flip,kill", 5),
            Row("set", "tail,flip,wipe", 5),
            Row("register", "restore,swap,flip"),
            Row("messages", "restore,swap"),
            Row("bank", "disk-full,kill"),
            Row("lock", "disk-full,freeze"),
            Row("session-counter", "tail,flip,transfer"),
            Row("queue", "wipe,kill", 5),
            Row("register", "wipe,flip,partition"),
            Row("messages", "wipe,flip,disk-full"),
            Row("ordered", "tail,flip"),
            Row("pop", "wipe,kill"),
        ),
    ),
    "membership": Suite(
        "members that come, go and are replaced, while others break",
        (
            Row("register", "membership"),
            Row("append", "membership,kill"),
            Row("bank", "membership,partition"),
            Row("set", "membership,kill,partition", 5),
            Row("lock", "membership,freeze"),
            Row("cas", "membership,transfer,rolling"),
            Row("session-counter", "membership,kill"),
            Row("queue", "membership,delay,loss"),
            Row("messages", "membership,kill"),
            Row("transaction", "membership,partition"),
            Row("register", "membership,wipe", grown=True),
            Row("append", "empty,partition", grown=True),
            Row("messages", "empty,kill", grown=True),
        ),
    ),
    "broker": Suite(
        "every workload with brokers, under faults of processes, links, disks; a hostile client",
        tuple(
            Row(workload, nemeses)
            for workload in (
                *("messages", "ordered", "delay", "transaction", "pop"),
                *("broadcast", "offset", "queue-lock"),
            )
            for nemeses in (
                *("kill,freeze", "partition,loss", "wipe,flip,disk-full", "rolling,stop"),
                *("name-server,clients", "silence"),
            )
        )
        + tuple(
            Row("everything", nemeses)
            for nemeses in ("hostile", "kill,freeze,hostile", "partition,loss,hostile")
        )
        + tuple(
            Row("guarded", f"certificates,users,{nemeses}")
            for nemeses in ("kill,freeze", "partition,loss", "clients,name-server", "rolling")
        )
        + tuple(
            Row("messages", f"proxy,{nemeses}", client=GRPC_CLIENT)
            for nemeses in ("kill,freeze", "partition,loss", "clients,name-server")
        )
        + tuple(
            Row("grpc", f"proxy,{nemeses}")
            for nemeses in ("kill,freeze", "partition,loss", "clients,name-server")
        ),
    ),
}


def planned(names: Sequence[str], seed: int, rounds: int | None) -> Iterator[Planned]:
    """Yield the runs of some suites, each with the next seed; without `rounds` for ever."""
    rows = [row for name in names for row in SUITES[name].rows]
    number = 0
    for _ in count() if rounds is None else range(rounds):
        for row in rows:
            yield Planned(number, row, seed + number)
            number += 1
