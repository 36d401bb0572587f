"""What a log can look like: the same steps, for our store and for Java's."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from dledger.core.hard_state import HardState
from dledger.entry import Magic
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.interop.java_store import NODE, JavaStore

KIB = 1024
GROUP = "g"


class Append(NamedTuple):
    """Entries that a leader of `term` appends in one batch."""

    term: int
    bodies: Sequence[bytes]
    magic: int = Magic.NORMAL


class Truncate(NamedTuple):
    """Everything behind `index` is dropped."""

    index: int  # type: ignore[assignment]  # hides tuple.index


class Restart(NamedTuple):
    """The store is closed and opened again."""


Step = Append | Truncate | Restart


class Shape(NamedTuple):
    """A log, by how it came to be."""

    name: str
    segment_bytes: int
    index_segment_bytes: int
    steps: Sequence[Step]

    @property
    def config(self) -> StoreConfig:
        """Our settings for it."""
        largest = min(self.segment_bytes - 56, 64 * KIB)
        return StoreConfig(self.segment_bytes, self.index_segment_bytes, largest)

    @property
    def last_term(self) -> int:
        """The term of the last append."""
        return [step.term for step in self.steps if isinstance(step, Append)][-1]


def bodies(seed: int, count: int, largest: int) -> list[bytes]:
    """Bodies of all lengths from 0 to `largest`, short ones more often; any bytes."""
    chance = Random(seed)
    sizes = [int(largest * chance.random() ** 4 + 0.5) for _ in range(count)]
    return [chance.randbytes(size) for size in sizes]


def noop(term: int) -> Append:
    """The entry that opens a leader's term."""
    return Append(term, [b""], Magic.NOOP)


# Lengths around every boundary that 64 KiB bodies can meet.
EDGES = (0, 1, 7, 8, 255, 256, 4047, 4048, 4096, 16 * KIB, 64 * KIB - 49, 64 * KIB - 1, 64 * KIB)
# In 1024 bytes: these leave 8 bytes, 9, 55 (one too few for an empty body), 56 (just enough).
SEGMENT_ENDS = (968, 967, 921, 920, 0, 500, 420, 0)

SHAPES = (
    Shape("one segment", 1 << 20, 64 * KIB, [noop(1), Append(1, bodies(1, 120, 6000))]),
    Shape("many segments", 64 * KIB, 4 * KIB, [Append(1, bodies(2, 500, 12_000))]),
    Shape(
        "tiny segments, blanks of every length",
        1024,
        256,
        [Append(1, [b"e" * size for size in SEGMENT_ENDS]), Append(2, bodies(3, 150, 900))],
    ),
    Shape("bodies of 0 to 64 KiB", 256 * KIB, 32, [Append(1, [b"\xff" * n for n in EDGES * 2])]),
    Shape(
        "a no-op in every term",
        64 * KIB,
        4 * KIB,
        [
            step
            for term in (1, 2, 4, 9)
            for step in (noop(term), Append(term, bodies(term, 90, 99)))
        ],
    ),
    Shape(
        "cut inside a segment, then longer entries",
        64 * KIB,
        4 * KIB,
        [Append(1, bodies(5, 100, 400)), Truncate(60), noop(2), Append(2, bodies(6, 100, 900))],
    ),
    Shape(
        "cut back over segments, then a few short entries",
        1024,
        256,
        [Append(1, bodies(7, 80, 500)), Truncate(33), Append(3, [b"short", b"", b"!"])],
    ),
    Shape(
        "everything cut, then written again",
        1024,
        256,
        [Append(1, bodies(8, 40, 500)), Truncate(-1), noop(2), Append(2, bodies(9, 40, 500))],
    ),
    Shape(
        "restarts between",
        64 * KIB,
        4 * KIB,
        [
            *(
                Append(1, bodies(10, 120, 2000)),
                Restart(),
                noop(2),
                Append(2, bodies(11, 60, 2000)),
            ),
            *(Truncate(150), noop(3), Append(3, bodies(12, 80, 2000)), Restart()),
        ],
    ),
)

# Nothing follows the cut before the restart: what lies behind the end must not be believed again.
CUT_AND_RESTARTED = Shape(
    "cut, then a restart",
    64 * KIB,
    4 * KIB,
    [Append(1, bodies(13, 40, 500)), Truncate(20), Restart()],
)


def reopen(base: Path, config: StoreConfig, node: str = NODE) -> SegmentStore:
    """Our store in `base`."""
    return open_store(OsDisk(), str(base), config, GROUP, node)


def write_ours(base: Path, shape: Shape) -> None:
    """The log of a shape, by our store."""
    store = reopen(base, shape.config)
    for step in shape.steps:
        if isinstance(step, Append):
            store.append(step.term, step.magic, step.bodies)
            store.begin_sync(HardState(step.term, NODE)).run()
        elif isinstance(step, Truncate):
            store.truncate_after(step.index)
        else:
            store.close()
            store = reopen(base, shape.config)
    store.close()


def write_javas(java: JavaStore, base: Path, shape: Shape) -> None:
    """The log of a shape, by Java's store, and the term file that its server keeps beside it."""
    java.open(base, shape.segment_bytes, shape.index_segment_bytes)
    for step in shape.steps:
        if isinstance(step, Append):
            java.lead(step.term)
            for body in step.bodies:
                java.append(step.magic, body)
        elif isinstance(step, Truncate):
            java.truncate_after(step.index)
        else:
            java.close()
            java.open(base, shape.segment_bytes, shape.index_segment_bytes)
    java.close()
    folder = base / f"dledger-{NODE}"
    (folder / "currterm").write_text(f"voteLeader={NODE}\ncurrTerm={shape.last_term}\n")


def entries(shape: Shape) -> Iterator[tuple[int, int, bytes]]:
    """Term, magic and body of every entry that is left at the end of the steps."""
    left: list[tuple[int, int, bytes]] = []
    for step in shape.steps:
        if isinstance(step, Append):
            left += [(step.term, step.magic, body) for body in step.bodies]
        elif isinstance(step, Truncate):
            del left[step.index + 1 :]
    return iter(left)
