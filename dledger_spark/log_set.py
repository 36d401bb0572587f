"""The logs below one path: for each group, the copy of the node that is furthest ahead.

A path may be a node's folder, the folder above it, or a folder above the folders of several nodes,
of one group or of several, such as the directory of `dledger-mq up`. All nodes of a group have
equal committed entries, so one of them is enough.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dledger.store.hard_state_file import StoreRecord
from dledger_spark.errors import LogFolderInvalid
from dledger_spark.local_path import local_path, require_folder
from dledger_spark.log.log_folder import NODE_PREFIX, LogFolder, open_log, read_record

# DIR/<group>/<node>/dledger-<id>: the depth of folders that hold nodes.
MAX_DEPTH: Final = 2
# Groups were not started in a path with more folders, and searching all of them takes long.
MAX_FOLDERS: Final = 4096


@dataclass(frozen=True, slots=True)
class LogSet:
    """The logs of one or several groups at one moment.

    Attributes:
        path: the given path, absolute; several have commas between them.
        logs: one log for each group, in the order of their names; at least one.
    """

    path: str
    logs: tuple[LogFolder, ...]

    @property
    def groups(self) -> tuple[str | None, ...]:
        """The groups' names; (None,) for a log of Java's, which has no name."""
        return tuple(log.group for log in self.logs)

    def of(self, group: str | None) -> LogFolder:
        """Return the log of one group. Raises LogFolderInvalid: there is none."""
        for log in self.logs:
            if log.group == group:
                return log
        raise LogFolderInvalid(
            self.path, f"holds no log of group {group!r}, only of {_listed(self.groups)}"
        )


def open_logs(*paths: str) -> LogSet:
    """Open the logs below one path or several for reading.

    Of a group's nodes, the one with the highest recorded commit index is taken; among equals, the
    one whose log begins first.

    Raises:
        LogFolderInvalid: there is no log, or it is unclear which logs belong together.
        LogDamaged: a node's hard-state record cannot be read.
    """
    given = [local_path("path", path) for path in paths]
    path = ", ".join(given)
    folders = dict.fromkeys(folder for one in given for folder in _node_folders(one))
    records = {folder: read_record(folder) for folder in folders}
    of_java = [folder for folder, record in records.items() if record is None]
    if of_java and len(records) > 1:
        raise LogFolderInvalid(
            path,
            f"holds {len(records)} logs, and {of_java[0]} does not say which group it is of "
            "(no hard-state, as Java DLedger leaves it): point at the folder of one node",
        )
    best: dict[str | None, tuple[str, StoreRecord | None]] = {}
    for folder, record in records.items():
        group = record.group if record else None
        if group not in best or _rank(record) > _rank(best[group][1]):
            best[group] = folder, record
    return LogSet(path, tuple(open_log(best[group][0]) for group in sorted(best, key=str)))


def _rank(record: StoreRecord | None) -> tuple[int, int]:
    return (record.committed, -record.before_begin) if record else (-1, 0)


def _node_folders(path: str) -> list[str]:
    """Return the folders of nodes at or below `path`, in the order of their names."""
    require_folder(path, "point at the folder of a node, or above it")
    if _holds_log(path):
        return [path]
    level = [path]
    found: list[str] = []
    seen = 0
    for depth in range(MAX_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            inside = list(_folders_in(folder))
            seen += len(inside)
            if seen > MAX_FOLDERS:
                problem = f"more than {MAX_FOLDERS} folders are below it: point further down"
                raise LogFolderInvalid(path, problem)
            nodes = [
                f"{folder}/{name}"
                for name in inside
                if name.startswith(NODE_PREFIX) and _holds_log(f"{folder}/{name}")
            ]
            found += nodes
            # Other folders beside a node belong to that node.
            if not nodes and depth < MAX_DEPTH:
                below += [f"{folder}/{name}" for name in inside]
        level = below
    if not found:
        raise LogFolderInvalid(
            path,
            f"holds no log: no {NODE_PREFIX}<id>/data/ is in it, or up to {MAX_DEPTH} folders "
            "below; point at the folder of a node, or above it",
        )
    return sorted(found)


def _folders_in(path: str) -> Iterator[str]:
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                yield entry.name


def _holds_log(path: str) -> bool:
    return os.path.isdir(f"{path}/data")


def _listed(groups: tuple[str | None, ...]) -> str:
    return ", ".join(repr(group) for group in groups)
