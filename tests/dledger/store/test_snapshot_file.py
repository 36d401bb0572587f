"""Snapshot files: what was written is read back, and no damage passes unnoticed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import SnapshotCorrupt
from dledger.store.disk import OsDisk
from dledger.store.snapshot_file import SnapshotReader
from dledger.store.snapshot_folder import SnapshotFolder
from dledger.store.snapshot_format import (
    CHUNK,
    MAX_CHUNK_BYTES,
    MAX_HEADER_BYTES,
    START,
    SnapshotHeader,
    decode_header,
    encode_header,
    header_size,
)
from tests.dledger.store.test_store_power_cut import LosingDisk, PowerCut

HEADER = SnapshotHeader(41, 7, 4096, 100, 0xFFEEDDCC, "orders", "counter/1", b"members")
CHUNKS = [b"one", b"", b"two" * 50, b"\0" * 9]


def never() -> bool:
    return False


def folder_in(base: Path) -> SnapshotFolder:
    folder = SnapshotFolder(OsDisk(), str(base))
    folder.open()
    return folder


def of(index: int) -> SnapshotHeader:
    return HEADER._replace(index=index)


def fits(header: SnapshotHeader) -> None:
    """No complaint."""


def test_chunks_come_back_as_they_were_given(tmp_path: Path) -> None:
    snapshot = folder_in(tmp_path).write(HEADER, CHUNKS, never)
    assert snapshot is not None
    assert snapshot.size_bytes == os.stat(snapshot.path).st_size
    reader = SnapshotReader(OsDisk(), snapshot.path)
    assert (reader.header, reader.size) == (HEADER, snapshot.size_bytes)
    assert list(reader.chunks()) == CHUNKS
    assert list(reader.chunks()) == CHUNKS
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [
        "00000000000000000041.snapshot"
    ]


def test_large_and_many_chunks_pass_through_in_windows(tmp_path: Path) -> None:
    random = Random(1)
    chunks = [random.randbytes(size) for size in (0, 1, 3_000_000, MAX_CHUNK_BYTES, 5)]
    chunks += [b"%d" % number for number in range(20_000)]
    snapshot = folder_in(tmp_path).write(HEADER, chunks, never)
    assert snapshot is not None
    assert list(SnapshotReader(OsDisk(), snapshot.path).chunks()) == chunks


@given(
    st.builds(
        SnapshotHeader,
        *[st.integers(0, 2**63 - 1)] * 3,
        *[st.integers(0, 2**32 - 1)] * 2,
        *[st.text(max_size=60)] * 2,
        st.binary(max_size=200),
    )
)
def test_headers_come_back(header: SnapshotHeader) -> None:
    content = encode_header(header)
    assert header_size(content[: START.size]) == len(content)
    assert decode_header(content) == header


@given(st.binary(max_size=200))
def test_bytes_that_are_no_header_are_refused_without_an_error(content: bytes) -> None:
    assert header_size(content) is None
    assert decode_header(content) is None


def test_headers_and_chunks_that_are_too_large_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="header"):
        encode_header(HEADER._replace(configuration=bytes(MAX_HEADER_BYTES)))
    with pytest.raises(ValueError, match="name"):
        encode_header(HEADER._replace(machine="x" * 256))
    folder = folder_in(tmp_path)
    with pytest.raises(ValueError, match="chunk"):
        folder.write(HEADER, [b"fine", bytes(MAX_CHUNK_BYTES + 1)], never)
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_every_flipped_byte_and_every_cut_is_noticed(tmp_path: Path) -> None:
    snapshot = folder_in(tmp_path).write(HEADER, CHUNKS, never)
    assert snapshot is not None
    path = Path(snapshot.path)
    whole = path.read_bytes()
    broken = [whole[:at] + bytes((whole[at] ^ 0x40,)) + whole[at + 1 :] for at in range(len(whole))]
    broken += [whole[:at] for at in range(len(whole))]
    broken += [whole + b"\0", whole + whole]
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(SnapshotCorrupt) as found:
            SnapshotReader(OsDisk(), str(path)).verify()
        assert found.value.path == str(path)
        assert 0 <= found.value.offset <= len(content)


def test_chunks_that_were_swapped_or_left_out_are_noticed(tmp_path: Path) -> None:
    snapshot = folder_in(tmp_path).write(HEADER, [b"aa", b"bb", b"cc"], never)
    assert snapshot is not None
    path = Path(snapshot.path)
    whole = path.read_bytes()
    size = CHUNK.size + 2
    at = whole.index(b"aa") - CHUNK.size
    first, second, rest = whole[at : at + size], whole[at + size : at + 2 * size], whole[at + 20 :]
    for content in (second + first, first, first + first, second):
        path.write_bytes(whole[:at] + content + rest)
        with pytest.raises(SnapshotCorrupt, match="closing record"):
            SnapshotReader(OsDisk(), str(path)).verify()


def test_a_length_from_a_broken_file_allocates_nothing(tmp_path: Path) -> None:
    snapshot = folder_in(tmp_path).write(HEADER, [b"aa"], never)
    assert snapshot is not None
    path = Path(snapshot.path)
    whole = path.read_bytes()
    at = whole.index(b"aa") - CHUNK.size
    for size in (3000, MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1, 0xFFFFFFFE):
        path.write_bytes(whole[:at] + size.to_bytes(4, "big") + whole[at + 4 :])
        with pytest.raises(SnapshotCorrupt, match="is too large"):
            SnapshotReader(OsDisk(), str(path)).verify()
    path.write_bytes(whole[:12] + (2**32 - 1).to_bytes(4, "big") + whole[16:])
    with pytest.raises(SnapshotCorrupt, match="no header"):
        SnapshotReader(OsDisk(), str(path))


def test_the_newest_good_one_is_found_and_broken_ones_are_told(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    paths = {}
    for index in (10, 20, 30, 40):
        snapshot = folder.write(of(index), [b"state %d" % index], never)
        assert snapshot is not None
        paths[index] = Path(snapshot.path)
    paths[40].write_bytes(paths[40].read_bytes()[:-1])
    newest, problems = folder.find_newest(lambda header: "no" if header.index == 30 else None)
    assert newest is not None
    assert newest.header.index == 20
    assert [str(paths[index]) in text for index, text in zip((40, 30), problems, strict=True)] == [
        True,
        True,
    ]
    assert folder.indexes() == [20, 10]
    folder.keep_newest(1)
    assert [path.exists() for path in paths.values()] == [False, True, False, False]


def test_a_file_under_another_ones_name_is_not_taken_for_it(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    snapshot = folder.write(of(10), [b"state"], never)
    assert snapshot is not None
    os.rename(snapshot.path, snapshot.path.replace("10.snap", "99.snap"))
    assert folder.find_newest(fits).newest is None


def test_a_snapshot_that_is_stopped_or_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)

    def failing() -> Iterator[bytes]:
        yield b"x"
        raise KeyError("gone")

    with pytest.raises(KeyError):
        folder.write(HEADER, failing(), never)
    answers = iter((False, True))
    assert folder.write(HEADER, [b"a", b"b"], lambda: next(answers)) is None
    assert list((tmp_path / "snapshots").iterdir()) == []
    assert folder.indexes() == []


def test_an_unfinished_file_is_removed_at_the_start(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    left = tmp_path / "snapshots" / "00000000000000000009.new"
    left.write_bytes(b"x")
    assert folder.write(of(9), [b"state"], never) is not None
    left.write_bytes(b"x")
    assert folder_in(tmp_path).indexes() == [9]
    assert not left.exists()


def test_a_full_disk_leaves_no_part_of_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = folder_in(tmp_path)

    def full(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="no space"):
            folder.write(HEADER, [bytes(100)] * 5, never)
    assert list((tmp_path / "snapshots").iterdir()) == []


def test_a_snapshot_that_has_its_name_survives_every_power_cut() -> None:
    for seed in range(150):
        random = Random(seed)
        disk = LosingDisk(random)
        written: list[int] = []
        chunks = [bytes([seed % 250 + 1]) * random.randint(0, 900) for _ in range(6)]
        for _ in range(3):
            folder = SnapshotFolder(disk, "/node")
            disk.steps_left = random.randint(0, 30)
            try:
                folder.open()
                for _ in range(4):
                    index = (written[-1] if written else 0) + 1
                    assert folder.write(of(index), chunks, never) is not None
                    written.append(index)
                    folder.keep_newest(2)
            except PowerCut:
                disk.cut_power()
            disk.steps_left = -1
            folder = SnapshotFolder(disk, "/node")
            folder.open()
            newest, problems = folder.find_newest(fits)
            assert problems == []
            if written:
                assert newest is not None
                assert newest.header.index >= written[-1]
                assert list(newest.chunks()) == chunks
                written.append(newest.header.index)
