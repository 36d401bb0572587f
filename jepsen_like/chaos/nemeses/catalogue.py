"""The nemeses by the names that `--nemesis` takes: their faults, and how long these last. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

# Steps of wall clocks: of a bad time server, and of a person who types a wrong time.
CLOCK_STEP_MS = (50, 30_000)


class Lane(Enum):
    """The subject of a fault. Faults of two lanes may overlap, those of one never do."""

    PROCESSES = "processes and disks"
    NETWORK = "network"


class Kind(NamedTuple):
    """One kind of fault.

    Attributes:
        name: as faults.jsonl and the table of gaps have it.
        shortest_s, longest_s: how long it lasts.
        settle_s: how long the group needs afterwards before the next fault of the lane.
    """

    name: str
    shortest_s: float
    longest_s: float
    settle_s: float = 0.0


class Nemesis(NamedTuple):
    """One way of breaking a group.

    Attributes:
        explanation: one line for `jepsen-like list`.
        kinds: the faults that it makes.
        harms_data: whether entries or promises of a member are lost: at most a minority of the
            members may be harmed at a time, so it waits until the group is whole.
        from_inside: whether members need the library that steers their calls.
    """

    explanation: str
    kinds: tuple[Kind, ...]
    lane: Lane = Lane.PROCESSES
    harms_data: bool = False
    from_inside: bool = False


def _brief_harm(explanation: str, kind: str) -> Nemesis:
    return Nemesis(explanation, (Kind(kind, 0.2, 1.0, settle_s=2.0),), harms_data=True)


def _packets(explanation: str, kind: str) -> Nemesis:
    return Nemesis(explanation, (Kind(kind, 2.0, 6.0),), Lane.NETWORK)


NEMESES: dict[str, Nemesis] = {
    "kill": Nemesis(
        "kill -9 of the leader, of any member, of all at once; started again",
        (
            Kind("kill-leader", 0.5, 4.0),
            Kind("kill-random", 0.5, 4.0),
            Kind("kill-all", 0.2, 2.0),
        ),
    ),
    "stop": Nemesis(
        "SIGTERM of the leader or of any member: it ends in order, and is started again",
        (Kind("stop-leader", 0.5, 3.0), Kind("stop-random", 0.5, 3.0)),
    ),
    "freeze": Nemesis(
        "SIGSTOP of the leader, of any member, of all, for less or more than an election takes",
        (
            Kind("freeze-leader", 0.3, 1.5),
            Kind("freeze-leader-long", 3.0, 7.0),
            Kind("freeze-random", 0.5, 4.0),
            Kind("freeze-all", 0.3, 1.5),
            Kind("freeze-all-long", 3.0, 7.0),
        ),
    ),
    "rolling": Nemesis(
        "all members are stopped and started again, one after the other",
        (Kind("rolling-restart", 0.0, 0.0, settle_s=1.0),),
    ),
    "transfer": Nemesis(
        "leadership is handed to another member",
        (Kind("transfer", 0.5, 1.0),),
    ),
    "tail": _brief_harm(
        "kill -9, then the last bytes of the log are cut off, and it is started again", "torn-tail"
    ),
    "flip": _brief_harm(
        "kill -9, then a bit of the log or of another file is flipped, and it is started again",
        "flipped-bit",
    ),
    "wipe": _brief_harm(
        "kill -9, then the whole folder is emptied, and it is started again", "wiped-folder"
    ),
    "restore": _brief_harm(
        "kill -9, then the folder is replaced by a copy of some time ago, and it is started again",
        "restored-folder",
    ),
    "swap": _brief_harm(
        "two of three members run on each other's disk for a moment", "swapped-folders"
    ),
    "empty": Nemesis(
        "one member is emptied, or most miss their folders for a while, and starts alone",
        (
            Kind("wiped-alone", 3.0, 6.0, settle_s=3.0),
            Kind("mislaid-folders", 3.0, 6.0, settle_s=3.0),
        ),
        harms_data=True,
    ),
    "disk-full": Nemesis(
        "the disk of a member is filled (needs root: a small tmpfs)",
        (Kind("disk-full", 2.0, 5.0, settle_s=2.0),),
    ),
    "power": Nemesis(
        "the power of all members or of one is cut: what was not synced is gone (needs root: ext4)",
        (
            Kind("power-all", 0.2, 2.0, settle_s=1.0),
            Kind("power-leader", 0.5, 3.0),
            Kind("power-random", 0.5, 3.0),
        ),
    ),
    "fsync-slow": Nemesis(
        "syncs of the leader, of any member, of all take 20 to 400 ms longer, or do not end",
        (
            Kind("fsync-slow-leader", 2.0, 5.0),
            Kind("fsync-slow-random", 2.0, 5.0),
            Kind("fsync-slow-all", 2.0, 5.0),
            Kind("fsync-stall-leader", 2.0, 6.0),
            Kind("fsync-stall-random", 2.0, 6.0),
            Kind("fsync-stall-all", 1.0, 4.0),
        ),
        from_inside=True,
    ),
    "fsync-fails": Nemesis(
        "one sync or all fail by EIO, in the leader, any member, all, or at a start: it must end",
        (
            Kind("fsync-fails-leader", 1.0, 3.0, settle_s=1.0),
            Kind("fsync-fails-random", 1.0, 3.0, settle_s=1.0),
            Kind("fsync-fails-all", 1.0, 3.0, settle_s=1.0),
            Kind("fsync-fails-start", 2.0, 5.0, settle_s=1.0),
        ),
        from_inside=True,
    ),
    "clock": Nemesis(
        "the wall clock of the leader, of any member, of all is stepped by up to 30 s, and back",
        (
            Kind("clock-leader", 1.0, 5.0),
            Kind("clock-random", 1.0, 5.0),
            Kind("clock-all", 1.0, 5.0),
            Kind("clock-strobe-leader", 2.0, 5.0),
        ),
        from_inside=True,
    ),
    "membership": Nemesis(
        "the group grows and shrinks, a member is replaced, also at the same address",
        (
            Kind("grow", 2.0, 4.0, settle_s=1.0),
            Kind("shrink", 2.0, 4.0, settle_s=1.0),
            Kind("replace", 2.0, 4.0, settle_s=1.0),
            Kind("replace-at-address", 0.5, 1.0, settle_s=2.0),
        ),
        harms_data=True,
    ),
    "name-server": Nemesis(
        "kill -9 and SIGSTOP of the name server (workloads with brokers)",
        (Kind("kill-name-server", 1.0, 8.0), Kind("freeze-name-server", 1.0, 8.0)),
    ),
    "clients": Nemesis(
        "kill -9 and SIGSTOP of all producers and consumers (workloads with brokers)",
        (Kind("kill-clients", 0.2, 3.0), Kind("freeze-clients", 0.5, 8.0)),
    ),
    "proxy": Nemesis(
        "kill -9, SIGTERM and SIGSTOP of a proxy, kill -9 of all (clients of gRPC)",
        (
            Kind("kill-proxy", 0.5, 4.0),
            Kind("stop-proxy", 0.5, 3.0),
            Kind("freeze-proxy", 0.5, 7.0),
            Kind("kill-all-proxies", 0.2, 2.0),
        ),
    ),
    "certificates": Nemesis(
        "certificates of all servers are renewed, by the same or by one more authority (guarded)",
        (
            Kind("renew-certificates", 1.0, 3.0),
            Kind("new-authority", 1.0, 3.0),
        ),
    ),
    "users": Nemesis(
        "the clients' user gets another secret; another user loses its rights (guarded)",
        (
            Kind("renew-secret", 0.5, 3.0),
            Kind("take-rights", 2.0, 6.0),
        ),
    ),
    "hostile": Nemesis(
        "a client without credentials floods ports with requests, connections and garbage",
        tuple(
            Kind(f"hostile-{attack}", 2.0, 6.0, settle_s=1.0)
            for attack in (
                *("repeated-code", "one-way-heartbeats", "odd-sends", "huge-fields"),
                *("garbage", "storm"),
            )
        ),
    ),
    "partition": Nemesis(
        "the leader is cut off, mute or deaf; halves, a ring of majorities, a bridge, one way",
        (
            Kind("isolate-leader", 1.0, 6.0),
            Kind("mute-leader", 1.0, 5.0),
            Kind("deaf-leader", 1.0, 5.0),
            Kind("isolate-random", 1.0, 5.0),
            Kind("halves", 1.0, 5.0),
            Kind("majorities-ring", 1.0, 5.0),
            Kind("bridge", 1.0, 5.0),
            Kind("one-way", 1.0, 5.0),
            Kind("flapping", 2.0, 5.0),
        ),
        Lane.NETWORK,
    ),
    "silence": Nemesis(
        "packets between all clients and all members vanish, for less or more than kernels wait",
        (
            Kind("clients-cut", 1.0, 4.0, settle_s=5.0),
            Kind("clients-cut-long", 6.0, 20.0, settle_s=5.0),
        ),
        Lane.NETWORK,
    ),
    "loss": _packets("packets between members are lost: 5 to 30 in 100", "loss"),
    "delay": _packets("packets between members are late, by 5 to 200 ms", "delay"),
    "reorder": _packets("packets between members overtake one another", "reorder"),
    "duplicate": _packets("packets between members come twice", "duplicate"),
}
