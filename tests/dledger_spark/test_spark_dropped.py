"""A log that changes while the reader takes in the names of its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.segment import file_name
from dledger.store.store_config import StoreConfig
from dledger_spark.errors import DataLost
from dledger_spark.log import log_folder
from dledger_spark.log.log_folder import open_log
from dledger_spark.scan import arrow_batches

LogWriter = Callable[..., Path]


def test_files_that_go_while_they_are_looked_at_are_no_gap(
    write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node drops two files, and the second one is gone first."""
    folder = write_log([b"x" * 100] * 100)
    store = open_store(OsDisk(), str(folder.parent), StoreConfig(), "g", "n0")
    sizes_of = log_folder._file_sizes

    def look_late(data: str) -> dict[int, int]:
        if store.first_index == 0:
            store.discard_before(54)
            store.begin_sync(None).run()
            (folder / "data" / file_name(4096)).unlink()
        return sizes_of(data)

    monkeypatch.setattr(log_folder, "_file_sizes", look_late)
    log = open_log(str(folder))
    assert (log.first_index, log.segments[0].start) == (54, 2 * 4096)
    store.close()


def test_a_gap_in_a_log_that_nothing_was_dropped_from_is_a_loss(write_log: LogWriter) -> None:
    folder = write_log([b"x" * 100] * 100)
    (folder / "data" / file_name(4096)).unlink()
    with pytest.raises(DataLost, match="is missing"):
        list(arrow_batches(open_log(str(folder))))


def test_a_file_that_got_its_length_meanwhile_is_not_short(
    write_log: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_log([b"x" * 100] * 100)
    sizes_of = log_folder._file_sizes

    def look_early(data: str) -> dict[int, int]:
        sizes = sizes_of(data)
        sizes[max(sizes)] = 0
        return sizes

    monkeypatch.setattr(log_folder, "_file_sizes", look_early)
    log = open_log(str(folder))
    assert [segment.size for segment in log.segments] == [4096] * 4
