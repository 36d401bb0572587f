"""A durable, replicated log with a state machine, on trio.

    async with dledger.open_node(config, machine) as node:
        appended = await node.append(b"hello")

See docs/ for the guide; `dledger --help` for the command.
"""

from dledger.client import GroupClient
from dledger.config import NodeConfig
from dledger.entry import Entry, Magic, PositionedBody
from dledger.errors import (
    AddressInUse,
    ConfigInvalid,
    DataFolderLocked,
    DataFolderMismatch,
    Discarded,
    DiskFailed,
    DLedgerError,
    EntryTooLarge,
    Fatal,
    InvariantBroken,
    LeaderKept,
    LeadershipLost,
    LeadershipMoving,
    LogCorrupt,
    LogFull,
    MachineFailed,
    NodeClosed,
    NodeClosing,
    NotLeader,
    OutcomeUnknown,
    ReadUnavailable,
    Rejected,
    RestoreFailed,
    SnapshotLost,
    SnapshotUnavailable,
    TransferFailed,
)
from dledger.host import Host, HostConfig, open_host
from dledger.node import Node
from dledger.open_node import open_node
from dledger.pending import Appended
from dledger.session_errors import (
    ResultNotKept,
    SessionExpired,
    SessionFull,
    SessionOutcomeUnknown,
    SessionsOff,
)
from dledger.session_table import SessionLimits
from dledger.sessions import NotAppendedInTime, Session, SessionAppended
from dledger.snapshot_policy import SnapshotPolicy
from dledger.state_machine import LogOnly, SnapshottingMachine, StateMachine
from dledger.status import PeerStatus, RoleChange, Status
from dledger.store.snapshot_folder import Snapshot
from dledger.store.store_config import StoreConfig
from dledger.with_sessions import WithSessions

__all__ = [
    "AddressInUse",
    "Appended",
    "ConfigInvalid",
    "DLedgerError",
    "DataFolderLocked",
    "DataFolderMismatch",
    "Discarded",
    "DiskFailed",
    "Entry",
    "EntryTooLarge",
    "Fatal",
    "GroupClient",
    "Host",
    "HostConfig",
    "InvariantBroken",
    "LeaderKept",
    "LeadershipLost",
    "LeadershipMoving",
    "LogCorrupt",
    "LogFull",
    "LogOnly",
    "MachineFailed",
    "Magic",
    "Node",
    "NodeClosed",
    "NodeClosing",
    "NodeConfig",
    "NotAppendedInTime",
    "NotLeader",
    "OutcomeUnknown",
    "PeerStatus",
    "PositionedBody",
    "ReadUnavailable",
    "Rejected",
    "RestoreFailed",
    "ResultNotKept",
    "RoleChange",
    "Session",
    "SessionAppended",
    "SessionExpired",
    "SessionFull",
    "SessionLimits",
    "SessionOutcomeUnknown",
    "SessionsOff",
    "Snapshot",
    "SnapshotLost",
    "SnapshotPolicy",
    "SnapshotUnavailable",
    "SnapshottingMachine",
    "StateMachine",
    "Status",
    "StoreConfig",
    "TransferFailed",
    "WithSessions",
    "open_host",
    "open_node",
]

__version__ = "0.1.0"
