"""Send and consume messages: a trio client for brokers that speak RocketMQ's protocol.

Everything is used as an `async with` block, follows a group's leader through elections, and says
of every message whether it is certainly stored, certainly not, or in doubt.
"""

from dledger_mq.admin.admin import Admin, BrokerStatus, QueueProgress
from dledger_mq.admin.answers import (
    ConsumerConnection,
    DirectResult,
    GroupConnections,
    GroupProgress,
    Statistic,
    TimeSpan,
    WindowTotal,
)
from dledger_mq.admin.consumer_group import ConsumerGroup
from dledger_mq.admin.dead_letters import Redriven
from dledger_mq.client_metrics import ClientMetrics
from dledger_mq.connection.client import Client
from dledger_mq.consuming.pull_consumer import PullConsumer
from dledger_mq.consuming.pulling import PullResult, PullStatus
from dledger_mq.consuming.push_consumer import PushConsumer, PushOptions
from dledger_mq.consuming.subscription import Sql
from dledger_mq.errors import (
    CallMisplaced,
    CertificatesRefused,
    ClientClosed,
    ClosedDuringCall,
    GroupInUse,
    InvalidArgument,
    InvalidBatching,
    InvalidClientId,
    InvalidCondition,
    InvalidCredentials,
    InvalidListener,
    InvalidMessage,
    InvalidNameServers,
    InvalidOptions,
    InvalidTls,
    MessagingError,
    NameServersUnreachable,
    NoBrokerLeads,
    NoDeadLetters,
    NoMaster,
    NoNameServers,
    NoReply,
    NotIterable,
    NoTransactionCheck,
    OffsetFileLocked,
    OffsetFileUnreadable,
    OpenedTwice,
    OtherLoop,
    OutcomeUnknown,
    QueueNotFound,
    Rejected,
    RequestRefused,
    RouteNotFound,
    SendFailed,
    SomeFailed,
    TransactionRefused,
    WindowFull,
)
from dledger_mq.listener import Listener
from dledger_mq.message import ConsumeFrom, ConsumeResult, Message, TransactionState
from dledger_mq.popping.pop_consumer import PopConsumer
from dledger_mq.popping.pop_options import PopOptions
from dledger_mq.producing.producer import Producer
from dledger_mq.producing.transaction import Transaction, TransactionCheck
from dledger_mq.received_message import ReceivedMessage
from dledger_mq.send_result import SendResult, SendStatus
from dledger_mq.sending.batching import Batching
from dledger_mq.sending.selectors import QueueSelector, by_key, by_sharding_key, to_queue
from dledger_mq.sending.sending import SendCallback, SendOutcome
from remoting.bodies.assignment import RequestMode
from remoting.bodies.heartbeat import MessageModel
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.trace import TraceRecord
from remoting.net.tls_config import Tls
from remoting.wire.signature import Credentials

__all__ = [
    "Admin",
    "Batching",
    "BrokerStatus",
    "CallMisplaced",
    "CertificatesRefused",
    "Client",
    "ClientClosed",
    "ClientMetrics",
    "ClosedDuringCall",
    "ConsumeFrom",
    "ConsumeResult",
    "ConsumerConnection",
    "ConsumerGroup",
    "Credentials",
    "DirectResult",
    "GroupConnections",
    "GroupInUse",
    "GroupProgress",
    "InvalidArgument",
    "InvalidBatching",
    "InvalidClientId",
    "InvalidCondition",
    "InvalidCredentials",
    "InvalidListener",
    "InvalidMessage",
    "InvalidNameServers",
    "InvalidOptions",
    "InvalidTls",
    "Listener",
    "Message",
    "MessageModel",
    "MessageQueue",
    "MessagingError",
    "NameServersUnreachable",
    "NoBrokerLeads",
    "NoDeadLetters",
    "NoMaster",
    "NoNameServers",
    "NoReply",
    "NoTransactionCheck",
    "NotIterable",
    "OffsetFileLocked",
    "OffsetFileUnreadable",
    "OpenedTwice",
    "OtherLoop",
    "OutcomeUnknown",
    "PopConsumer",
    "PopOptions",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "PushConsumer",
    "PushOptions",
    "QueueNotFound",
    "QueueProgress",
    "QueueSelector",
    "ReceivedMessage",
    "Redriven",
    "Rejected",
    "RequestMode",
    "RequestRefused",
    "RouteNotFound",
    "SendCallback",
    "SendFailed",
    "SendOutcome",
    "SendResult",
    "SendStatus",
    "SomeFailed",
    "Sql",
    "Statistic",
    "TimeSpan",
    "Tls",
    "TraceRecord",
    "Transaction",
    "TransactionCheck",
    "TransactionRefused",
    "TransactionState",
    "WindowFull",
    "WindowTotal",
    "by_key",
    "by_sharding_key",
    "to_queue",
]
