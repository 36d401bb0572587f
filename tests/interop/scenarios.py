"""What our store and Java's make of each other's folders."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dledger.core.hard_state import HardState
from dledger.entry import BLANK_BYTES, BLANK_MAGIC, HEADER_BYTES, Magic
from dledger.errors import HardStateOutdated
from dledger.free_ports import free_ports
from dledger.store.noop_body import NoopBody, encode_noop_body
from dledger.store.scan import StoreScan, scan_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.interop.java_store import NODE, Failed, JavaStore, Row
from tests.interop.shapes import (
    CUT_AND_RESTARTED,
    KIB,
    SHAPES,
    Shape,
    bodies,
    entries,
    reopen,
    write_javas,
    write_ours,
)
from tests.interop.three_nodes import run_three_nodes

GOLDEN = Path(__file__).parents[1] / "dledger" / "data" / "golden"
# What is appended to a log that the other one wrote: an empty body and a large one among it.
MORE = [b"", *bodies(99, 40, 64 * KIB), b"last"]
# What a leader opens its term with.
NOOP = encode_noop_body(NoopBody("n0", 1_700_000_000_000, bytes(range(16))))
INDEX_UNIT_BYTES = 32
SUMS_AT = slice(36, 44)


class Place(NamedTuple):
    """Where a scenario runs."""

    java: JavaStore
    folder: Path


class Scenario(NamedTuple):
    """One thing to try. `run` answers what is worth telling, and raises Failed."""

    name: str
    run: Callable[[Place], str]


# --- reading --------------------------------------------------------------------------------------


def our_rows(base: Path, node: str = NODE) -> list[Row]:
    """Every entry that we find in a folder at rest; raises Failed unless all of it is sound."""
    scan: StoreScan = scan_folder(str(base / f"dledger-{node}"))
    rows = []
    for header, path, offset in scan.entries():
        with open(path, "rb") as file:
            file.seek(offset + HEADER_BYTES)
            digest = hashlib.sha256(file.read(header.body_size)).hexdigest()
        rows.append(
            Row(
                *(header.index, header.term, header.pos, header.magic, header.size),
                *(header.channel, header.chain_crc, header.body_crc, header.body_size, digest),
            )
        )
    for problem in scan.verify():
        raise Failed(f"{problem.path} at byte {problem.offset}: {problem.text}")
    return rows


def file_bytes(base: Path, part: str, node: str = NODE) -> dict[str, bytes]:
    """The files of `data` or `index`, by name."""
    folder = base / f"dledger-{node}" / part
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def same(what: str, found: Sequence[object], wanted: Sequence[object]) -> None:
    """Raise Failed at the first place where two lists differ."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            raise Failed(f"{what} {number}: found {one}, not {other}")
    if len(found) != len(wanted):
        raise Failed(f"{len(found)} of {what}, not {len(wanted)}")


def check_content(rows: Iterable[Row], wanted: Iterable[tuple[int, int, bytes]]) -> None:
    """Compare what was read with what was handed in."""
    found = [(row.term, row.magic, row.body_size, row.sha256) for row in rows]
    handed_in = [
        (term, magic, len(body), hashlib.sha256(body).hexdigest()) for term, magic, body in wanted
    ]
    same("entry", found, handed_in)


def java_reads(place: Place, base: Path, sizes: tuple[int, int], node: str = NODE) -> list[Row]:
    """All rows by Java's recovery and `get`, which must leave what we wrote as it was."""
    before = {part: file_bytes(base, part, node) for part in ("data", "index")}
    opened = place.java.open(base, *sizes, node)
    rows = place.java.rows()
    place.java.close()
    if file_bytes(base, "data", node) != before["data"]:
        raise Failed(f"Java's recovery changed the data of {base}")
    # Java blanks the units before the first entry kept once more.
    kept = (opened.before + 1) * INDEX_UNIT_BYTES
    index = file_bytes(base, "index", node)
    kept -= int(min(index, default="0"))
    if b"".join(index.values())[kept:] != b"".join(before["index"].values())[kept:]:
        raise Failed(f"Java's recovery changed the index of {base}")
    if rows and (opened.end, opened.end_term) != (rows[-1].index, rows[-1].term):
        raise Failed(f"Java found {opened}, its last entry is {rows[-1]}")
    return rows


def go_on(store: SegmentStore, node: str = NODE) -> list[tuple[int, int, bytes]]:
    """Append to a log as the leader of a new term; what was appended."""
    term = store.hard_state.term + 1
    store.append(term, Magic.NOOP, [NOOP])
    limit = store.segment_bytes - HEADER_BYTES - BLANK_BYTES
    fitting = [body for body in MORE if len(body) <= limit]
    store.append(term, Magic.NORMAL, fitting)
    store.begin_sync(HardState(term, node)).run()
    store.note_committed(store.last_index)
    return [(term, Magic.NOOP, NOOP), *((term, Magic.NORMAL, body) for body in fitting)]


def file_lengths(base: Path, node: str) -> tuple[int, int]:
    """Length of the data files and of the index files."""
    lengths = [{*map(len, file_bytes(base, part, node).values())} for part in ("data", "index")]
    (data_bytes,), (index_bytes,) = lengths
    return data_bytes, index_bytes


# --- Java reads ours ------------------------------------------------------------------------------


def java_reads_ours(shape: Shape) -> Callable[[Place], str]:
    """Our store writes the steps of a shape; Java opens the folder."""

    def run(place: Place) -> str:
        write_ours(place.folder, shape)
        ours = our_rows(place.folder)
        check_content(ours, entries(shape))
        sizes = (shape.segment_bytes, shape.index_segment_bytes)
        same("entry", java_reads(place, place.folder, sizes), ours)
        return f"{len(ours)} entries in {len(file_bytes(place.folder, 'data'))} segments"

    return run


def java_reads_a_killed_process(place: Place) -> str:
    """What a process that is killed leaves: nothing was closed, the last entries never synced."""
    shape = SHAPES[1]
    store = reopen(place.folder / "running", shape.config)
    store.append(3, Magic.NORMAL, bodies(20, 200, 3000))
    store.begin_sync(HardState(3, NODE)).run()
    store.append(3, Magic.NORMAL, bodies(21, 30, 3000))
    killed = place.folder / "killed"
    shutil.copytree(place.folder / "running", killed)
    store.close()
    rows = java_reads(place, killed, (shape.segment_bytes, shape.index_segment_bytes))
    same("entry", rows, our_rows(killed))
    return f"{len(rows)} entries"


def java_reads_a_group(place: Place) -> str:
    """Three nodes, their leader stopped twice under load: terms, no-ops and cuts as they come."""
    config = StoreConfig(64 * KIB, 4 * KIB, 8 * KIB)
    run_three_nodes(place.folder, config)
    seen: list[list[Row]] = []
    for node in ("n0", "n1", "n2"):
        base = place.folder / node
        rows = java_reads(place, base, (64 * KIB, 4 * KIB), node)
        same("entry", rows, our_rows(base, node))
        seen.append(rows)
    shortest = min(map(len, seen))
    same("entry", seen[0][:shortest], seen[1][:shortest])
    same("entry", seen[1][:shortest], seen[2][:shortest])
    terms = {row.term for row in seen[0]}
    noops = sum(row.magic == Magic.NOOP for row in seen[0])
    return f"{len(seen[0])} entries, {len(terms)} terms, {noops} no-ops on each of three nodes"


def cut_and_restarted(place: Place) -> str:
    """What was cut stays away when nothing was written in its place; Java brings it back."""
    shape = CUT_AND_RESTARTED
    sizes = (shape.segment_bytes, shape.index_segment_bytes)
    write_ours(place.folder / "ours", shape)
    wanted = list(entries(shape))
    check_content(java_reads(place, place.folder / "ours", sizes), wanted)
    write_javas(place.java, place.folder / "javas", shape)
    place.java.open(place.folder / "javas", *sizes)
    javas = place.java.rows()
    place.java.close()
    ours_goes_on(place, place.folder / "javas", NODE, javas)  # we read there what Java reads
    return f"{len(wanted)} entries; in Java's own folder {len(javas) - len(wanted)} came back"


# --- ours goes on with Java's ---------------------------------------------------------------------


def ours_goes_on(place: Place, base: Path, node: str, javas: list[Row]) -> str:
    """Adopt a folder of Java, check it, append to it, and have Java read the result."""
    store = reopen(base, StoreConfig(), node)
    try:
        if store.unchecked_through != javas[-1].index:
            raise Failed(f"adopted up to {store.unchecked_through}, not {javas[-1].index}")
        appended = go_on(store, node)
    finally:
        store.close()
    sizes = file_lengths(base, node)
    rows = our_rows(base, node)
    same("entry", rows[: len(javas)], javas)
    check_content(rows[len(javas) :], appended)
    same("entry", java_reads(place, base, sizes, node), rows)
    return f"{len(javas)} of Java, {len(appended)} of ours"


def ours_goes_on_with_a_shape(shape: Shape) -> Callable[[Place], str]:
    """Java's store writes the steps of a shape."""

    def run(place: Place) -> str:
        write_javas(place.java, place.folder, shape)
        place.java.open(place.folder, shape.segment_bytes, shape.index_segment_bytes)
        javas = place.java.rows()
        place.java.close()
        check_content(javas, entries(shape))
        return ours_goes_on(place, place.folder, NODE, javas)

    return run


def ours_goes_on_with_golden(node: Path) -> Callable[[Place], str]:
    """A folder that a group of Java's servers left."""

    def run(place: Place) -> str:
        base = place.folder / "golden"
        shutil.copytree(node, base)
        term_file = base / f"dledger-{node.name}" / "currterm"
        if not term_file.exists():  # made by Java's store alone, without a server
            term_file.write_text("voteLeader=\ncurrTerm=3\n")
        return ours_goes_on(place, base, node.name, golden_rows(node))

    return run


def java_serves_and_hands_back(place: Place) -> str:
    """A server of Java goes on with our folder; we refuse it until our old record is removed."""
    shape = SHAPES[4]
    sizes = (shape.segment_bytes, shape.index_segment_bytes)
    write_ours(place.folder, shape)
    ours = our_rows(place.folder)
    [port] = free_ports(1)
    term = place.java.serve(place.folder, *sizes, port, 50)
    place.java.open(place.folder, *sizes)
    javas = place.java.rows()
    place.java.close()
    same("entry", javas[: len(ours)], ours)
    served = [(term, Magic.NORMAL, b"served %d" % number) for number in range(50)]
    check_content(javas[len(ours) :], served)
    try:
        reopen(place.folder, shape.config).close()
    except HardStateOutdated:
        (place.folder / f"dledger-{NODE}" / "hard-state").unlink()
    else:
        raise Failed("our store believed a record from before Java's turn")
    return f"{len(ours)} of ours first; " + ours_goes_on(place, place.folder, NODE, javas)


def golden_rows(node: Path) -> list[Row]:
    """What Java itself once read in a golden folder."""
    lines = (node / "entries.tsv").read_text().splitlines()[1:]
    rows = []
    for line in lines:
        *numbers, digest, magic = line.split("\t")
        index, term, pos, size, channel, chain, body_sum, body_size = map(int, numbers)
        sums = (chain % 2**32, body_sum % 2**32)
        rows.append(Row(index, term, pos, int(magic), size, channel, *sums, body_size, digest))
    return rows


# --- byte by byte ---------------------------------------------------------------------------------


def bytes_are_equal(shape: Shape) -> Callable[[Place], str]:
    """Both stores take the same steps; their files differ in the sums alone."""

    def run(place: Place) -> str:
        ours, javas = place.folder / "ours", place.folder / "javas"
        write_ours(ours, shape)
        write_javas(place.java, javas, shape)
        end = scan_end(ours)
        notes = compare_data(file_bytes(ours, "data"), file_bytes(javas, "data"), end, shape)
        notes += compare_index(file_bytes(ours, "index"), file_bytes(javas, "index"), shape)
        return "; ".join(notes) or "equal but for the sums"

    return run


def scan_end(base: Path) -> int:
    """Position behind the last entry."""
    last = our_rows(base)[-1]
    return last.pos + last.size


def compare_data(
    ours: dict[str, bytes], javas: dict[str, bytes], end: int, shape: Shape
) -> list[str]:
    """Compare the data files; what differs besides the sums, in words."""
    same("data file", list(ours), list(javas))
    mine, theirs = bytearray(b"".join(ours.values())), bytearray(b"".join(javas.values()))
    blanks = []
    at, entry_bytes = 0, 0
    while at < end:
        magic = int.from_bytes(mine[at : at + 4], "big", signed=True)
        size = int.from_bytes(mine[at + 4 : at + 8], "big")
        if magic == BLANK_MAGIC:
            blanks.append((at + BLANK_BYTES, at + size))
        else:
            entry_bytes += size
            for content in (mine, theirs):
                content[at + SUMS_AT.start : at + SUMS_AT.stop] = bytes(8)
        at += size
    notes = []
    for begin, stop, where in [*((*blank, "a blank") for blank in blanks), (end, None, "the end")]:
        if any(mine[begin:stop]):
            raise Failed(f"our bytes behind {where} at {begin} are not zero")
        if any(theirs[begin:stop]):
            notes.append(f"Java left old bytes behind {where}")
            theirs[begin:stop] = mine[begin:stop]
    if mine != theirs:
        at = next(n for n in range(len(mine)) if mine[n] != theirs[n])
        raise Failed(f"byte {at}: ours {mine[at]:#x}, Java's {theirs[at]:#x}")
    return [f"{entry_bytes} bytes equal but for the sums", *dict.fromkeys(notes)]


def compare_index(ours: dict[str, bytes], javas: dict[str, bytes], shape: Shape) -> list[str]:
    """Compare the index files; what differs, in words."""
    same("index file", list(ours), list(javas))
    mine, theirs = bytearray(b"".join(ours.values())), bytearray(b"".join(javas.values()))
    end = len(list(entries(shape))) * INDEX_UNIT_BYTES
    notes = []
    for at in range(0, end, INDEX_UNIT_BYTES):
        unit, magic = slice(at, at + INDEX_UNIT_BYTES), slice(at, at + 4)
        if mine[unit] != theirs[unit]:
            theirs[magic] = mine[magic]
            notes.append("Java's index calls a no-op normal")
    if any(theirs[end:]):
        notes.append("Java left old units in the index")
        theirs[end:] = bytes(len(theirs) - end)
    if mine != theirs:
        at = next(n for n in range(len(mine)) if mine[n] != theirs[n])
        raise Failed(f"index byte {at}: ours {mine[at]:#x}, Java's {theirs[at]:#x}")
    return list(dict.fromkeys(notes))


def all_scenarios() -> list[Scenario]:
    """Every scenario, in the order in which it runs."""
    golden = sorted(path.parent for path in GOLDEN.rglob("entries.tsv"))
    return [
        *(Scenario(f"Java reads ours: {one.name}", java_reads_ours(one)) for one in SHAPES),
        Scenario(f"Java reads ours: {CUT_AND_RESTARTED.name}", cut_and_restarted),
        Scenario("Java reads ours: a process was killed", java_reads_a_killed_process),
        Scenario("Java reads ours: a group, its leader stopped twice", java_reads_a_group),
        *(Scenario(f"the bytes of both: {one.name}", bytes_are_equal(one)) for one in SHAPES),
        *(
            Scenario(f"ours goes on with Java's: {one.name}", ours_goes_on_with_a_shape(one))
            for one in SHAPES
        ),
        *(
            Scenario(f"ours goes on with Java's: {path_name(one)}", ours_goes_on_with_golden(one))
            for one in golden
        ),
        Scenario(
            "a server of Java goes on with ours, and hands it back", java_serves_and_hands_back
        ),
    ]


def path_name(node: Path) -> str:
    """How a golden folder is called."""
    return f"golden {node.relative_to(GOLDEN)}"
