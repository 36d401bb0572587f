"""Tables of a node's folder that was shipped to an object store, or elsewhere where Arrow reads."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import fs

from dledger.store.segment import start_of
from dledger_spark.errors import OptionInvalid, StoreUnreadable
from dledger_spark.log.folder_log import FolderLog, open_folders
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.update import Updated, next_index, update_tables

# A file of the log has 1 GiB by default, so a machine needs room for 4 GiB.
FILES_MAX: Final = 4
_RECORD: Final = "hard-state"
_DATA: Final = "data"
_PIECE_BYTES: Final = 8 * 1024 * 1024
# A URL may have a name and a secret before the host: errors do not show them.
_CREDENTIALS: Final = re.compile(r"//[^/@]*@")


def update_from_store(
    home: TableHome,
    url: str,
    *,
    fail_on_data_loss: bool = True,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> Iterator[Updated]:
    """Add the new entries of a shipped folder, and yield after each few files of it.

    Only files that the tables do not have come to this machine, into the tables' folder, and leave
    it when the tables have their entries. The last one stays, as it may grow. The index files of
    the log are not needed.

    Args:
        home: the tables' folder, `held` by the caller.
        url: of the node's folder, as `pyarrow.fs.FileSystem.from_uri` takes it. The folder's
            hard-state must be shipped before the files in `data`.
        fail_on_data_loss: see `update_tables`.
        on_progress: see `update_tables`.

    Raises:
        OptionInvalid: no such URL.
        StoreUnreadable: the store does not answer, or has no such folder.
        DledgerSparkError: see `update_tables`.
    """
    named = _CREDENTIALS.sub("//", url)
    shown = named.partition("?")[0]
    try:
        store, path = fs.FileSystem.from_uri(url)
    except OSError as error:
        raise StoreUnreadable(shown, f"{error!s:.300}") from None
    except (pa.ArrowException, ValueError) as error:
        problem = f"no URL that Arrow opens: {error!s:.300}".replace(url, shown)
        raise OptionInvalid("shipped", shown, problem) from None
    shipped, node = _Shipped(store, path, shown), home.shipped_path(named)
    files_max, end, there_is_more = FILES_MAX, 0, True
    while there_is_more:
        there_is_more = shipped.copy_next(node, files_max)
        [log] = open_folders(node)
        yield update_tables(
            home,
            log,
            log.resolve(None, "end").stop,
            fail_on_data_loss=fail_on_data_loss,
            on_progress=on_progress,
        )
        before, end = end, next_index(home, log.group) or 0
        _drop_files(node, log, end)
        if end > (-1 if log.committed is None else log.committed):
            return  # the next files are for a later run, whose record says that they are committed
        if end == before:
            files_max += 1  # entries that cannot be read may fill more files than these


class _Shipped(NamedTuple):
    """A folder in a store: its path there, and its URL for errors."""

    store: fs.FileSystem
    path: str
    url: str

    def copy_next(self, node: str, files_max: int) -> bool:
        """Copy the last file here once more, as it may have grown, and the next ones, until there
        are `files_max` here; return whether there are more behind them.
        """
        os.makedirs(f"{node}/{_DATA}", exist_ok=True)
        # It says how far the log is committed, so it must not be newer than the files.
        self._copy(_RECORD, node)
        here = _files(node)
        last = max(here, default="")
        with self._told():
            found = self.store.get_file_info(fs.FileSelector(f"{self.path}/{_DATA}"))
        there = (one.base_name for one in found if one.is_file)
        names = sorted(name for name in there if start_of(name) is not None and name >= last)
        if not names:
            raise StoreUnreadable(self.url, f"{_DATA} has no file from {last or 'the first'} on")
        count = max(1, files_max - len(here[:-1]))
        for name in names[:count]:
            self._copy(f"{_DATA}/{name}", node)
        return len(names) > count

    def _copy(self, name: str, node: str) -> None:
        with open(f"{node}/{name}", "wb") as file:
            for piece in self._pieces(name):
                file.write(piece)

    def _pieces(self, name: str) -> Iterator[bytes]:
        with self._told(), self.store.open_input_stream(f"{self.path}/{name}") as stream:
            while piece := stream.read(_PIECE_BYTES):
                yield piece

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise StoreUnreadable(self.url, f"{_without_secrets(str(error)):.300}") from None


def _without_secrets(text: str) -> str:
    """Return a URL, or a text with it, without the key and the secret before the host."""
    return re.sub(r"(?<=://)[^/?#\s]*@", "***@", text)


def _files(node: str) -> list[str]:
    names = os.listdir(f"{node}/{_DATA}")
    return sorted(name for name in names if start_of(name) is not None)


def _drop_files(node: str, log: FolderLog, end: int) -> None:
    """Delete the files before the one with the entry where the tables end. The last one stays."""
    starts = [one.start for one in log.folder.segments if one.first_index <= end]
    for name in _files(node)[:-1]:
        if int(name) < max(starts, default=0):
            os.unlink(f"{node}/{_DATA}/{name}")
