"""Opens the folder of a node: a new one, our own, or one that Java DLedger left."""

from __future__ import annotations

import contextlib

from dledger.core.admission.standing import Standing
from dledger.entry import BEFORE_FIRST_INDEX, BLANK_BYTES, HEADER_BYTES
from dledger.errors import DataFolderMismatch, HardStateLost, HardStateOutdated
from dledger.store.disk import Disk, DiskLock, failing
from dledger.store.folder import (
    DATA,
    INDEX,
    LOCK,
    SPARE,
    FoundFiles,
    drop_discarded,
    find_files,
    node_folder,
    open_data,
    open_index,
)
from dledger.store.hard_state_file import FILE_NAME as HARD_STATE
from dledger.store.hard_state_file import HardStateFile, StoreRecord, check_name
from dledger.store.index_unit import UNIT_BYTES
from dledger.store.java_term_file import FILE_NAME as JAVA_TERM
from dledger.store.java_term_file import covers, read_java_term, retire_java_term
from dledger.store.orphans_file import OrphansFile
from dledger.store.recovered import Recovered
from dledger.store.recovery import Recovery
from dledger.store.segment import SegmentFiles, SpareSegments
from dledger.store.segment_store import SegmentStore, StoreFiles
from dledger.store.standing_file import StandingFile
from dledger.store.store_config import StoreConfig
from dledger.store.walk import ALL_UNCHECKED


def open_store(
    disk: Disk,
    folder: str,
    config: StoreConfig,
    group: str,
    node_id: str,
    spare_disk: Disk | None = None,
) -> SegmentStore:
    """Open or create the store of one node in `folder`/dledger-`node_id`.

    Existing files keep their lengths; `config` is for new logs. `spare_disk`: where spare segments
    are written, which give up no reserve for themselves; the same disk if not given.

    Raises:
        ConfigInvalid: a name does not fit.
        DataFolderLocked: another process has the folder open.
        DataFolderMismatch: it belongs to another node or group.
        HardStateLost: there is a log, and no record of term and vote.
        HardStateOutdated: Java DLedger has run in the folder since.
        LogCorrupt: a record inside the log is broken.
        DiskFailed: any error of the disk.
    """
    check_name("group", group)
    check_name("node_id", node_id)
    path = node_folder(folder.rstrip("/") or "/", node_id)
    with failing("open", path):
        for part in ("", f"/{DATA}", f"/{INDEX}"):
            disk.make_folder(path + part)
        with contextlib.ExitStack() as undo:
            lock = disk.lock(f"{path}/{LOCK}")
            undo.callback(lock.close)
            identity = StoreRecord(group, node_id, 0, 0)
            store = _open_locked(disk, path, config, identity, undo, lock, spare_disk or disk)
            undo.pop_all()
            return store


def _open_locked(
    disk: Disk,
    path: str,
    config: StoreConfig,
    identity: StoreRecord,
    undo: contextlib.ExitStack,
    lock: DiskLock,
    spare_disk: Disk,
) -> SegmentStore:
    # A power cut may undo the names that a killed process gave: sync them before using them.
    disk.sync_folder(path)
    opened = HardStateFile.open(disk, path)
    standing, orphans = StandingFile(disk, path), OrphansFile(disk, path)
    data_found = find_files(disk, f"{path}/{DATA}")
    index_found = find_files(disk, f"{path}/{INDEX}")
    if opened is None:
        hard_state_file = None
        record = _first_record(disk, path, config, identity, data_found, index_found)
        if not data_found.sizes and not record.term and standing.standing is Standing.PROVEN:
            standing.set(Standing.FRESH)  # before the record: a new folder is not proven
    else:
        hard_state_file, record = opened
        undo.callback(hard_state_file.close)
        _check_identity(path, record, identity)
        _check_java_has_not_run(disk, path, hard_state_file, record)
        first_unit = (record.before_begin + 1) * UNIT_BYTES
        drop_discarded(disk, f"{path}/{DATA}", record.segment_bytes, data_found, record.begin_pos)
        drop_discarded(disk, f"{path}/{INDEX}", record.index_segment_bytes, index_found, first_unit)
    data = open_data(disk, f"{path}/{DATA}", record.segment_bytes, data_found)
    undo.callback(data.close)
    index = open_index(disk, f"{path}/{INDEX}", record.index_segment_bytes, index_found)
    undo.callback(index.close)
    known_begin = None if opened is None and data_found.sizes else record.before_begin + 1
    synced = BEFORE_FIRST_INDEX if hard_state_file is None else hard_state_file.synced
    recovered = Recovery(
        data, index, record, known_begin, synced, lambda: standing.set(Standing.LOST)
    ).run()
    _sync_recovered(disk, data, index, recovered)
    complete = _complete_record(record, recovered, is_new=opened is None)
    if hard_state_file is None:
        hard_state_file = HardStateFile.create(disk, path, complete)
        undo.callback(hard_state_file.close)
    elif complete != record:
        hard_state_file.write(complete, durable=True)
    hard_state_file.lower_mark(recovered.last_index)
    hard_state_file.mark_synced(recovered.last_index)
    retire_java_term(disk, path)
    spares = SpareSegments(
        spare_disk, f"{path}/{SPARE}", record.segment_bytes, config.spare_segments
    )
    spares.open()
    data.use_spares(spares)
    return SegmentStore(
        StoreFiles(disk, data, index, hard_state_file, standing, orphans, spares, lock),
        complete,
        recovered,
        min(config.max_body_bytes, record.segment_bytes - HEADER_BYTES - BLANK_BYTES),
        config.checkpoint_bytes,
    )


def _first_record(
    disk: Disk,
    path: str,
    config: StoreConfig,
    identity: StoreRecord,
    data_found: FoundFiles,
    index_found: FoundFiles,
) -> StoreRecord:
    """Make the record of a new folder, or of one that Java left. Refuses a log without a term."""
    java = read_java_term(disk, path)
    if java is None and data_found.sizes:
        raise HardStateLost(f"{path}/{HARD_STATE}")
    index_bytes = index_found.segment_bytes
    if index_bytes % UNIT_BYTES:
        index_bytes = 0  # not an index of this format: it is rebuilt
    return identity._replace(
        segment_bytes=data_found.segment_bytes or config.segment_bytes,
        index_segment_bytes=index_bytes or config.index_segment_bytes,
        term=java.term if java else 0,
        voted_for=java.voted_for if java else None,
        unchecked_through=ALL_UNCHECKED if data_found.sizes else BEFORE_FIRST_INDEX,
    )


def _check_identity(path: str, record: StoreRecord, identity: StoreRecord) -> None:
    found = f"node {record.node_id} of group {record.group}"
    expected = f"node {identity.node_id} of group {identity.group}"
    if found != expected:
        raise DataFolderMismatch(path, found, expected)


def _check_java_has_not_run(
    disk: Disk, path: str, hard_state_file: HardStateFile, record: StoreRecord
) -> None:
    """Refuse a folder in which Java has run since our record: it may have voted and appended.

    A crash may leave Java's term file beside the first record, which was made from it, but not
    beside a later one.
    """
    java = read_java_term(disk, path)
    if java is None:
        return
    if not (hard_state_file.is_first_record and covers(record.hard_state, java)):
        raise HardStateOutdated(f"{path}/{HARD_STATE}", f"{path}/{JAVA_TERM}")


def _sync_recovered(
    disk: Disk, data: SegmentFiles, index: SegmentFiles, recovered: Recovered
) -> None:
    """Make durable what a killed process left in the page cache, before it is used."""
    first = recovered.begins[0]
    data.mark_dirty(start for start in data.starts if start + data.segment_bytes > first.pos)
    index_pos = first.first_index * UNIT_BYTES
    index.mark_dirty(start for start in index.starts if start + index.segment_bytes > index_pos)
    for files in (data, index):
        files.sync_dirty()
        disk.sync_folder(files.folder)


def _complete_record(record: StoreRecord, recovered: Recovered, *, is_new: bool) -> StoreRecord:
    """Return the record with the results of recovery."""
    last_term = recovered.runs[-1].term if recovered.runs else record.before_begin_term
    if record.term < last_term:
        # The crash came between entries and record: see log_durability.
        record = record._replace(term=last_term, voted_for=None)
    first = recovered.begins[0]
    if is_new:
        record = record._replace(
            unchecked_through=min(record.unchecked_through, recovered.last_index),
            before_begin=recovered.first_index - 1,
            begin_pos=recovered.begin_pos,
            scan_pos=first.pos,
            scan_index=first.first_index,
        )
    return record
