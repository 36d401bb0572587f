"""The byte tables of docs/storage-format.md agree with what the code writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from dledger.core.admission.standing import Standing
from dledger.entry import HEADER_BYTES, Header, Magic, encode
from dledger.store.disk import OsDisk
from dledger.store.hard_state_file import (
    MARK_AT,
    SLOT_BYTES,
    SLOT_DISTANCE_BYTES,
    StoreRecord,
    decode_record,
    encode_mark,
    encode_record,
)
from dledger.store.index_unit import UNIT, UNIT_BYTES, IndexUnit
from dledger.store.recovery_table import TABLE
from dledger.store.snapshot_format import (
    CHUNK,
    END_MARK,
    SnapshotHeader,
    chunk_sum,
    encode_end,
    encode_header,
)
from dledger.store.standing_file import FILE_NAME, StandingFile
from docs._ext import store_tables

PAGE = (Path(__file__).parent.parent.parent / "docs" / "storage-format.md").read_text(
    encoding="utf-8"
)


class Place(NamedTuple):
    """A row of a byte table."""

    offset: int
    size: int
    field: str

    def of(self, content: bytes, *, signed: bool) -> int:
        return int.from_bytes(content[self.offset : self.offset + self.size], "big", signed=signed)


def section(title: str, page: str = PAGE) -> str:
    """The text under a heading, up to the next one of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def places(text: str) -> list[Place]:
    """The rows of a byte table that have an offset and a size."""
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([^|]*?) *\|", text, re.MULTILINE)
    return [Place(int(offset), int(size), field) for offset, size, field in rows]


def assert_dense(rows: list[Place], end: int) -> None:
    at = 0
    for row in rows:
        assert row.offset == at, row
        at += row.size
    assert at == end


def snake(field: str) -> str:
    return re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), field)


def test_an_entry_lies_as_the_page_says() -> None:
    rows = places(section("Entry"))
    assert_dense(rows, HEADER_BYTES)
    assert [snake(row.field) for row in rows] == list(Header._fields)
    content, chain = encode(Magic.CONFIGURATION, 11, 7, 4096, 99, b"body")
    expected = Header(3, 52, 11, 7, 4096, 0, chain, crc32(b"body"), 4)
    found = [row.of(content, signed="Crc" not in row.field) for row in rows]
    assert found == list(expected)
    # "CRC-32 over bytes 0..35 and bodyCrc, begun with the chainCrc of the entry before"
    assert chain == crc32(content[:36] + content[40:44], 99)
    assert content[HEADER_BYTES:] == b"body"


def test_a_unit_of_the_index_lies_as_the_page_says() -> None:
    rows = places(section("Index"))
    assert_dense(rows, UNIT_BYTES)
    unit = IndexUnit(2, 4096, 52, 11, 7)
    content = UNIT.pack(*unit)
    assert {row.field: row.of(content, signed=True) for row in rows} == unit._asdict()


RECORD = StoreRecord(
    group="orders",
    node_id="n1",
    segment_bytes=1,
    index_segment_bytes=2,
    term=3,
    voted_for="n2",
    committed=4,
    unchecked_through=5,
    before_begin=6,
    before_begin_term=7,
    before_begin_chain=8,
    scan_pos=9,
    scan_index=10,
    begin_pos=11,
    configuration_index=12,
)


def test_the_record_of_term_and_vote_lies_as_the_page_says() -> None:
    rows = places(section("hard-state"))
    slot = encode_record(RECORD, sequence=13)
    assert f"slots of {SLOT_BYTES} bytes at offsets 0 and {SLOT_DISTANCE_BYTES}" in PAGE
    assert len(slot) == SLOT_BYTES
    magic, *numbers, check = rows
    assert slot[: magic.size] == b"DLedgerH"
    assert_dense([magic, *numbers], 112)
    known = {**RECORD._asdict(), "sequence": 13, "version": 2}
    for row in numbers:
        signed = row.field != "before_begin_chain"
        assert row.of(slot, signed=signed) == known[row.field], row
    assert {row.field for row in numbers} == {
        name for name in known if name not in ("group", "node_id", "voted_for")
    }
    assert slot[112:].startswith(b"\x02n2\x06orders\x02n1\0")
    assert encode_record(RECORD._replace(voted_for=None), 13)[112] == 255
    assert (check.offset, check.of(slot, signed=False)) == (508, crc32(slot[:508]))


def test_a_record_of_version_1_is_read_as_the_page_says() -> None:
    slot = bytearray(encode_record(RECORD, sequence=13)[:508])
    del slot[104:112]  # "no configuration_index: its names begin at 104"
    slot[8:12] = (1).to_bytes(4, "big")
    slot += bytes(508 - len(slot))
    old = decode_record(bytes(slot) + crc32(slot).to_bytes(4, "big"))
    assert old == (RECORD._replace(configuration_index=-1), 13)


def test_a_snapshot_file_lies_as_the_page_says() -> None:
    text = section("Snapshot files")
    cells = re.findall(r"^\| (\w*[\w ]*?) *\| ([^|]+?) \| ([^|]*?) *\|", text, re.MULTILINE)
    cells = [cell for cell in cells if cell[1] != "size"]
    assert [cell[1] for cell in cells] == [
        *("8", "4", "4", "8, 8, 8", "4", "4", "4 + n", "2 + n", "2 + n", "4"),
        *("4", "4", "n", "4", "8, 8", "4", "4"),
    ]
    header = SnapshotHeader(11, 7, 4096, 52, 99, "orders", "counter/2", b"members")
    content = encode_header(header)
    by_hand = (
        b"DLedgerS"
        + (1).to_bytes(4, "big")
        + len(content).to_bytes(4, "big")
        + b"".join(number.to_bytes(8, "big") for number in (11, 7, 4096))
        + (52).to_bytes(4, "big")
        + (99).to_bytes(4, "big")
        + (7).to_bytes(4, "big")
        + b"members"
        + (6).to_bytes(2, "big")
        + b"orders"
        + (9).to_bytes(2, "big")
        + b"counter/2"
    )
    assert content == by_hand + crc32(by_hand).to_bytes(4, "big")
    size = (5).to_bytes(4, "big")
    assert CHUNK.size == 8
    assert chunk_sum(b"chunk") == crc32(size + b"chunk")
    end = encode_end(1, 5, 77)
    assert END_MARK.to_bytes(4, "big").hex() in text
    assert end[:24] == END_MARK.to_bytes(4, "big") + b"".join(
        number.to_bytes(width, "big") for number, width in ((1, 8), (5, 8), (77, 4))
    )
    assert end[24:] == crc32(end[:24]).to_bytes(4, "big")


def test_the_synced_mark_lies_where_the_page_says() -> None:
    text = section("hard-state")
    assert f"At offset {MARK_AT} lies the *synced mark*, {len(encode_mark(7))} bytes" in text
    assert encode_mark(7).startswith(b"DLsynced" + (7).to_bytes(8, "big"))


def test_the_mark_of_a_folder_in_doubt_is_the_one_on_the_page(tmp_path: Path) -> None:
    mark = StandingFile(OsDisk(), str(tmp_path))
    for standing in (Standing.FRESH, Standing.LOST):
        mark.set(standing)
        assert (tmp_path / FILE_NAME).read_text().strip() in " ".join(PAGE.split())


def test_the_decision_table_on_the_page_has_every_row_of_the_code() -> None:
    rows = store_tables.recovery().splitlines()[2:]
    assert len(rows) == len(TABLE)
    for row, decision in zip(rows, TABLE, strict=True):
        assert decision.verdict.name.lower() in row
        assert decision.reason in row


# Below, the checks are shown to be able to fail.


def test_a_gap_in_a_byte_table_is_found() -> None:
    rows = places("| 0 | 4 | a |\n| 8 | 8 | b |\n")
    assert rows == [Place(0, 4, "a"), Place(8, 8, "b")]
    try:
        assert_dense(rows, 16)
    except AssertionError:
        return
    raise AssertionError("a gap was not found")
