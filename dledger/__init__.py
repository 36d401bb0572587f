"""A durable, replicated log with a state machine, on trio.

    async with dledger.open_node(config, machine) as node:
        appended = await node.append(b"hello")

See docs/ for the guide; `dledger --help` for the command.
"""

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
    TransferFailed,
)
from dledger.node import Node, open_node
from dledger.pending import Appended
from dledger.state_machine import LogOnly, StateMachine
from dledger.status import PeerStatus, RoleChange, Status
from dledger.store.store_config import StoreConfig

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
    "NotLeader",
    "OutcomeUnknown",
    "PeerStatus",
    "PositionedBody",
    "ReadUnavailable",
    "Rejected",
    "RoleChange",
    "StateMachine",
    "Status",
    "StoreConfig",
    "TransferFailed",
    "open_node",
]

__version__ = "0.1.0"
