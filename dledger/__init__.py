"""A durable, replicated log with a state machine, on trio.

    async with dledger.open_node(config, machine) as node:
        appended = await node.append(b"hello")

See docs/ for the guide; `dledger --help` for the command.
"""

from dledger.client.client_errors import (
    AnswerOverdue,
    AnswerUnreadable,
    ConnectionLost,
    GroupUnreachable,
    RefusedByNode,
    TooManyBodies,
    UnknownToNode,
)
from dledger.client.group_client import GroupClient
from dledger.client.remote_log import RemoteLog, connect
from dledger.config import NodeConfig, parse_peers
from dledger.core.membership.change_errors import (
    AlreadyJoint,
    ChangePending,
    ChangeRefused,
    ConfigurationInvalid,
    ConfigurationMoved,
    GrowthNotNoted,
    LearnerBehind,
    LearnerStalled,
    MemberUnknown,
    NotJoint,
    NoVoters,
    VoterInDoubt,
    VotersSilent,
)
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_change import (
    AddLearner,
    AddVoter,
    Change,
    Demote,
    Promote,
    Remove,
    Transition,
    UpdateAddress,
)
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.entry import (
    HEADER_BYTES,
    LARGEST_BODY_BYTES,
    MAX_BODY_BYTES,
    Body,
    Entry,
    Magic,
    PositionedBody,
    PositionedParts,
)
from dledger.errors import (
    AddressInUse,
    BirthUnreadable,
    BodyInvalid,
    ClientAppendsOff,
    ConfigInvalid,
    ConfigurationLost,
    DataFolderLocked,
    DataFolderMismatch,
    Discarded,
    DiskFailed,
    DiskUnresponsive,
    DLedgerError,
    EntryTooLarge,
    Fatal,
    FirstVotersDiffer,
    InvariantBroken,
    LeaderKept,
    LeadershipLost,
    LeadershipMoving,
    LogCorrupt,
    LogFull,
    MachineFailed,
    MachineStopped,
    MachineTooOld,
    MachineUnusable,
    NodeClosed,
    NodeClosing,
    NodeFailed,
    NotInTrio,
    NotLeader,
    OutcomeUnknown,
    OutsideLog,
    ReadUnavailable,
    Rejected,
    RestoreFailed,
    SnapshotLost,
    SnapshotUnavailable,
    TransferFailed,
)
from dledger.metrics.serving_metrics import serve_metrics
from dledger.network.tls_config import TlsConfig
from dledger.node.collector import collect_seldom
from dledger.node.host import Host, HostConfig, open_host
from dledger.node.node import Node
from dledger.node.open_node import open_node
from dledger.sessions.session import NotAppendedInTime, Session, SessionAppended
from dledger.sessions.session_clock import SessionClock
from dledger.sessions.session_errors import (
    ResultNotKept,
    SessionExpired,
    SessionFull,
    SessionOutcomeUnknown,
    SessionsOff,
)
from dledger.sessions.session_table import SessionLimits
from dledger.sessions.with_sessions import WithSessions
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.state_machine import (
    LogOnly,
    RetainingMachine,
    SnapshottingMachine,
    StateMachine,
)
from dledger.status import GroupStatus, LearnerStatus, PeerStatus, RoleChange, Status
from dledger.store.recovered import SegmentBegin
from dledger.store.snapshot_folder import Snapshot
from dledger.store.store_config import StoreConfig
from dledger.waits.pending_appends import Appended
from dledger.wire.group_identity import Superseded

__all__ = [
    "HEADER_BYTES",
    "LARGEST_BODY_BYTES",
    "MAX_BODY_BYTES",
    "AddLearner",
    "AddVoter",
    "AddressInUse",
    "AlreadyJoint",
    "AnswerOverdue",
    "AnswerUnreadable",
    "Appended",
    "BirthUnreadable",
    "Body",
    "BodyInvalid",
    "Change",
    "ChangePending",
    "ChangeRefused",
    "ClientAppendsOff",
    "ConfigInvalid",
    "Configuration",
    "ConfigurationInvalid",
    "ConfigurationLost",
    "ConfigurationMoved",
    "ConnectionLost",
    "DLedgerError",
    "DataFolderLocked",
    "DataFolderMismatch",
    "Demote",
    "Discarded",
    "DiskFailed",
    "DiskUnresponsive",
    "Entry",
    "EntryTooLarge",
    "Fatal",
    "FirstVotersDiffer",
    "GroupClient",
    "GroupStatus",
    "GroupUnreachable",
    "GrowthNotNoted",
    "Host",
    "HostConfig",
    "InvariantBroken",
    "LeaderKept",
    "LeadershipLost",
    "LeadershipMoving",
    "LearnerBehind",
    "LearnerStalled",
    "LearnerStatus",
    "LogCorrupt",
    "LogFull",
    "LogOnly",
    "MachineFailed",
    "MachineStopped",
    "MachineTooOld",
    "MachineUnusable",
    "Magic",
    "MemberUnknown",
    "NoVoters",
    "Node",
    "NodeClosed",
    "NodeClosing",
    "NodeConfig",
    "NodeFailed",
    "NotAppendedInTime",
    "NotInTrio",
    "NotJoint",
    "NotLeader",
    "NumberedConfiguration",
    "OutcomeUnknown",
    "OutsideLog",
    "PeerStatus",
    "PositionedBody",
    "PositionedParts",
    "Promote",
    "ReadUnavailable",
    "RefusedByNode",
    "Rejected",
    "RemoteLog",
    "Remove",
    "RestoreFailed",
    "ResultNotKept",
    "RetainingMachine",
    "RoleChange",
    "SegmentBegin",
    "Session",
    "SessionAppended",
    "SessionClock",
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
    "Superseded",
    "TlsConfig",
    "TooManyBodies",
    "TransferFailed",
    "Transition",
    "UnknownToNode",
    "UpdateAddress",
    "VoterInDoubt",
    "VotersSilent",
    "WithSessions",
    "collect_seldom",
    "connect",
    "open_host",
    "open_node",
    "parse_peers",
    "serve_metrics",
]

__version__ = "0.1.0"
