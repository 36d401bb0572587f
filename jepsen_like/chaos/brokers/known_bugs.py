"""Mistakes of brokers by the names that `--dirty` takes, and what shows each. Pure.

Their code is in `seeded_bugs`, which is imported by the members that make them alone.
"""

from __future__ import annotations

from typing import NamedTuple


class KnownBug(NamedTuple):
    """A mistake of brokers.

    Attributes:
        what: what a broker with it does.
        workload: the one that finds it within a minute.
        nemesis: what it takes, by names with commas between them.
    """

    what: str
    workload: str
    nemesis: str


DEFAULT = "kill,freeze,partition"
# Those of chaos alone; the others are also looked for by simulation.
CHAOS_BUGS: dict[str, KnownBug] = {
    "sends-acknowledged-early": KnownBug(
        "a send is acknowledged before the log has it", "messages", DEFAULT
    ),
    "offsets-in-memory": KnownBug(
        "offsets are kept in the leader's memory alone", "offset", DEFAULT
    ),
    "locks-in-memory": KnownBug(
        "a lock is answered from the leader's own state, without the log", "queue-lock", DEFAULT
    ),
}
SIMULATED_BUGS: dict[str, KnownBug] = {
    "offsets-acknowledged-early": KnownBug(
        "a commit of an offset is answered before the log has it", "offset", DEFAULT
    ),
    "locks-of-two": KnownBug("a queue is given to whoever asks for it", "queue-lock", DEFAULT),
    "delivered-early": KnownBug(
        "delayed messages are delivered before they are due", "delay", DEFAULT
    ),
    "half-messages-seen": KnownBug(
        "a half message is stored in the topic that it was sent to", "transaction", DEFAULT
    ),
    "delayed-not-in-snapshots": KnownBug(
        "a snapshot lacks the delayed messages that wait", "delay", DEFAULT
    ),
}
KNOWN_BUGS = {**CHAOS_BUGS, **SIMULATED_BUGS}
