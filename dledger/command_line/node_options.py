"""The settings of a node that an operator may give as flags, in the environment, or in a file.

They are derived from `NodeConfig`, `StoreConfig` and `SnapshotPolicy`: each field of a simple type
is an option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from dledger.command_line.options import Decorated, option, options
from dledger.config import NodeConfig
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig

_HELP = {
    "listen": "Where to listen, if not at this member's address in --peers: 0.0.0.0:20911, say.",
    "client_appends": "Whether clients may append; without it only members of the group do.",
    "election_timeout_ms": "An election starts one to two of these after the last heartbeat.",
    "heartbeat_interval_ms": "How often a leader sends heartbeats.",
    "max_clock_drift": "Lease reads: the share by which any clock may drift. Off by default.",
    "preferred_leader": "The member that should lead whenever it is healthy.",
    "flush_interval_ms": "Entries count before they are synced: a power cut may lose some.",
    "small_appends_when_full": "Take appends on a full disk while its reserve has room.",
    "max_pending_entries": "Appends that may wait for their commit.",
    "max_pending_bytes": "The same in bytes.",
    "max_batch_bytes": "The largest push to another member.",
    "watch_history_bytes": "Changes kept for watches, of a state machine that tells them.",
    "scrub_period_hours": "The whole log is checked once in this time; 0 switches it off.",
    "segment_bytes": "Length of a new log's data files.",
    "index_segment_bytes": "Length of a new log's index files, a multiple of 32.",
    "max_body_bytes": "The largest entry.",
    "checkpoint_bytes": "A start checks the log again from a point this far before its end.",
    "spare_segments": "Data files that are written ahead.",
    "reserve_bytes": "Room on the disk kept for going on when it is full; 0: none.",
    "snapshot_every_entries": "Write a snapshot after this many entries; 0 switches it off.",
    "snapshot_every_bytes": "The same in bytes of the log.",
    "snapshot_kept": "How many snapshots are kept, with the log after the oldest one.",
    "snapshot_trailing_entries": "Entries that are kept for members that are behind.",
}

# The types by the annotations of the settings.
_KINDS: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}

# Settings with options of their own.
_IDENTITY = frozenset({"group", "node_id", "peers", "data_dir", "joining", "new"})

_SNAPSHOT = "snapshot_"


class NodeOption(NamedTuple):
    """One setting.

    Attributes:
        name: of the option, in words joined by underscores.
        kind: of its value.
        default: its default value, or None.
        help: one line about it.
        part: the class that holds it.
        field: its name in that class.
    """

    name: str
    kind: type
    default: Any
    help: str
    part: type
    field: str

    @property
    def key(self) -> str:
        """The long name of the option, without the dashes."""
        return self.name.replace("_", "-")


def _options_of(part: type, prefix: str = "") -> list[NodeOption]:
    found = []
    for field in fields(part):
        kind = _KINDS.get(str(field.type).removesuffix(" | None"))
        if kind is None or field.default is MISSING or field.name in _IDENTITY:
            continue
        name = prefix + field.name
        found.append(NodeOption(name, kind, field.default, _HELP.get(name, ""), part, field.name))
    return found


NODE_OPTIONS: tuple[NodeOption, ...] = (
    *_options_of(NodeConfig),
    *_options_of(StoreConfig),
    *_options_of(SnapshotPolicy, _SNAPSHOT),
)


# The long names of the options of a SnapshotPolicy.
SNAPSHOT_KEYS = tuple(one.key for one in NODE_OPTIONS if one.part is SnapshotPolicy)


def declared(
    chosen: Iterable[NodeOption], defaults: Mapping[str, Any] | None = None
) -> Callable[[Decorated], Decorated]:
    """Declare an option for each of these settings; `defaults` replaces some, by their names."""
    others = defaults or {}
    return options(
        *(
            option(
                f"--{one.key}", one.help, type=one.kind, default=others.get(one.name, one.default)
            )
            for one in chosen
        )
    )


def node_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `NodeConfig` for these values of options.

    Raises ConfigInvalid for contradictory sizes or an invalid policy.
    """
    parts: dict[type, dict[str, Any]] = {NodeConfig: {}, StoreConfig: {}, SnapshotPolicy: {}}
    for one in NODE_OPTIONS:
        if one.name in values:
            parts[one.part][one.field] = values[one.name]
    return {
        **parts[NodeConfig],
        "store": StoreConfig(**parts[StoreConfig]),
        "snapshots": SnapshotPolicy(**parts[SnapshotPolicy]),
    }


def option_of(setting: str) -> str:
    """Return the option of the setting that a ConfigInvalid names."""
    first, _, rest = setting.partition(".")
    if first == "snapshots":
        return _SNAPSHOT + rest
    return {"node_id": "node", "data_dir": "dir", "joining": "join"}.get(first, first)
