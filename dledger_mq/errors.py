"""Errors of the client. Their classes tell whether the outcome is certain.

Every error is a `MessagingError`. A send that was not acknowledged is a `SendFailed`: either
`Rejected` (certainly not stored, sending it again is safe; `InvalidMessage` and `WindowFull` are
kinds of it) or `OutcomeUnknown` (it may be stored, sending it again may store it twice).
"""

from collections.abc import Sequence
from typing import ClassVar

from dledger.declared_error import DeclaredError
from dledger.renamed import renamed_fields
from dledger_mq.send_result import SendResult
from remoting.bodies.message_queue import MessageQueue
from remoting.wire.codes import MAY_BE_STORED


class MessagingError(DeclaredError):
    """The base class of all errors that this package raises on purpose.

    Attributes:
        retry_safe: whether certainly nothing was done, so that the call may be repeated. See
            `dledger.DLedgerError`.
    """

    retry_safe: ClassVar[bool] = False


class SendFailed(MessagingError):
    """A send did not end in an acknowledgement.

    Attributes:
        topic: the message's topic.
        reason: the last failure, without advice.
        attempts: how many times the message was handed to a connection.
        code: the broker's response code, or None when no broker answered.
    """

    advice = ""

    topic: str
    reason: str
    attempts: int
    code: int | None = None

    def _text(self) -> str:
        return f"message to {self.topic!r:.140} not acknowledged ({self.reason}): {self.advice}"


class Rejected(SendFailed):
    """The message is certainly not stored: no attempt reached a broker, or each was refused."""

    retry_safe = True
    advice = "it is not stored, sending it again is safe"


class InvalidMessage(Rejected):
    """Brokers would refuse the message as it is; nothing was sent."""

    advice = "change it"

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason, 0)


class WindowFull(Rejected):
    """The allowed number of sends wait for their answers; nothing was sent."""

    advice = "wait for answers before sending more"

    def __init__(self, topic: str, limit: int) -> None:
        self.limit = limit
        super().__init__(topic, f"{limit} sends are in flight", 0)


class OutcomeUnknown(SendFailed):
    """At least one attempt reached a broker and its answer was lost: the message may be stored."""

    advice = "it may be stored, sending it again may store it twice"


class SomeFailed(MessagingError):
    """Of several messages sent together, some were not acknowledged.

    Attributes:
        outcomes: the `SendResult` or `SendFailed` of each message, in their order.
    """

    outcomes: Sequence[SendResult | SendFailed]

    @property
    def failed(self) -> int:
        """The number of messages that were not acknowledged."""
        return len(self._failures())

    def _failures(self) -> list[SendFailed]:
        return [item for item in self.outcomes if isinstance(item, SendFailed)]

    def _text(self) -> str:
        failures = self._failures()
        first = f" ({failures[0].reason}): {failures[0].advice}" if failures else ""
        return f"{len(failures)} of {len(self.outcomes)} messages not acknowledged{first}"


class InvalidCondition(MessagingError):
    """A broker cannot filter by a condition.

    Attributes:
        topic: the topic whose messages were to be filtered.
        reason: the broker's remark.
    """

    topic: str
    reason: str
    _template = "the condition for topic {topic!r:.140} cannot be served: {reason}"


@renamed_fields(timeout_seconds="timeout_s")
class NoReply(MessagingError):
    """A question is stored, but no reply came in time; a consumer may still handle it.

    Attributes:
        topic: the question's topic.
        message_id: the question's id.
        timeout_s: how long `ask` waited.
    """

    topic: str
    message_id: str
    timeout_s: float
    _template = (
        "no reply to question {message_id} of topic {topic!r:.140} within {timeout_s:g} s: "
        "see whether a consumer replies to it"
    )


class NoTransactionCheck(MessagingError):
    """A producer without a check tried to begin a transaction.

    Attributes:
        group: the producer group.
    """

    group: str
    _template = (
        "producer group {group!r:.140} has no check, so that no broker could find out how a "
        "transaction has ended whose commit was lost: give one, Producer(..., check=...)"
    )


class TransactionRefused(MessagingError):
    """A broker refused to end a transaction: it has ended in the other way before, or the broker
    does not know it.

    Attributes:
        topic: the message's topic.
        message_id: the message's id.
        reason: the broker's remark.
    """

    topic: str
    message_id: str
    reason: str
    _template = (
        "transaction {message_id} of topic {topic!r:.140} cannot end so ({reason}): see whether "
        "the check has answered for it, or too late"
    )


class RouteNotFound(MessagingError):
    """No name server knows the topic.

    Attributes:
        topic: the topic.
        nameservers: the name servers that were asked.
    """

    topic: str
    nameservers: tuple[str, ...]

    def _text(self) -> str:
        return (
            f"name servers {', '.join(self.nameservers)} know no topic {self.topic!r:.140}: create "
            "it (dledger-mq topic create), or check that its brokers run and name these name "
            "servers"
        )


class QueueNotFound(RouteNotFound):
    """A topic does not have a queue.

    Attributes:
        queue: the queue.
    """

    def __init__(self, queue: MessageQueue, nameservers: tuple[str, ...]) -> None:
        super().__init__(queue.topic, nameservers)
        self.queue = queue

    def _text(self) -> str:
        return (
            f"topic {self.topic!r:.140} has no queue {self.queue.queue_id} at "
            f"{self.queue.broker_name!r:.80}: give one of its `queues`"
        )


class NoDeadLetters(RouteNotFound):
    """A consumer group never had a dead letter, or does not exist.

    Attributes:
        group: the group.
    """

    def __init__(self, group: str, topic: str, nameservers: tuple[str, ...]) -> None:
        super().__init__(topic, nameservers)
        self.group = group

    def _text(self) -> str:
        return f"group {self.group!r:.140} has no dead letters: see that its name is right"


class NoBrokerLeads(RouteNotFound):
    """No name server knows the topic, because no group of brokers has a leader.

    Attributes:
        groups: the groups of brokers that the name servers know.
    """

    groups: tuple[str, ...]

    def _text(self) -> str:
        return no_broker_leads(self.nameservers, self.groups)


def no_broker_leads(nameservers: Sequence[str], groups: Sequence[str] = ()) -> str:
    """Return the text of an error: name servers know no leader, and what to do."""
    who = f"no broker of {', '.join(groups)} leads" if groups else "no broker is registered"
    return (
        f"{who} at name servers {', '.join(nameservers)}: wait for an election; without a quorum "
        "there is none, so start the brokers that are down (and check which name servers they name)"
    )


class NoMaster(MessagingError):
    """The topic's route has no leader for the queue now.

    Attributes:
        topic: the topic.
        broker_name: the group of brokers, or an empty text when the route has no queue.
    """

    topic: str
    broker_name: str

    def _text(self) -> str:
        who = (
            f"group {self.broker_name!r:.80} has no leader"
            if self.broker_name
            else "there is no queue"
        )
        return f"topic {self.topic!r:.140}: {who} now; wait for an election, or start brokers"


class NameServersUnreachable(MessagingError):
    """None of the name servers answered.

    Attributes:
        nameservers: the name servers that were asked.
        reason: the failure of the last one.
    """

    nameservers: tuple[str, ...]
    reason: str

    def _text(self) -> str:
        asked = ", ".join(self.nameservers)
        return f"no name server of {asked} answers ({self.reason}): check that one runs"


class NoNameServers(NameServersUnreachable):
    """The servers at all addresses given for name servers speak another protocol.

    Calls raise it, or fail with it as the reason, at once: a retry does not help.
    """

    def _text(self) -> str:
        there = ", ".join(self.nameservers)
        return (
            f"{there}: no name server there ({self.reason}): give the addresses of RocketMQ's name "
            "servers"
        )


class RequestRefused(MessagingError):
    """A broker or name server answered with an error code.

    Attributes:
        address: the server that answered, "host:port".
        code: a `remoting.wire.codes.ResponseCode`, or a number that it does not have.
        remark: the text of the answer.
        what: the request in words.
    """

    address: str
    what: str
    code: int
    remark: str

    def __init__(self, address: str, what: str, code: int, remark: str | None) -> None:
        self.address = address
        self.what = what
        self.code = code
        self.remark = remark or ""

    def _text(self) -> str:
        return (
            f"{self.address} refused to {self.what} (code {self.code}): "
            f"{self.remark or 'no reason'}"
        )


def outcome_unknown(error: BaseException | None) -> bool:
    """Return whether an error leaves open whether its request was carried out."""
    if isinstance(error, RequestRefused):
        return error.remark.startswith(MAY_BE_STORED)
    return getattr(error, "outcome_unknown", False)


class GroupInUse(MessagingError):
    """A client already has a consumer of this group; brokers could not tell the two apart.

    Attributes:
        group: the consumer group.
    """

    group: str
    _template = (
        "this client already has a consumer of group {group!r:.140}: subscribe it to more topics, "
        "or open another client"
    )


class ClientClosed(MessagingError):
    """A producer, consumer or client was used outside its `async with` block, or has ended.

    Attributes:
        what: the object.
        reason: the error that ended it, which is also the cause, or an empty text.
    """

    retry_safe = True

    what: str
    reason: str = ""

    def _text(self) -> str:
        if self.reason:
            return f"the {self.what} has ended by an error: {self.reason}"
        return f"the {self.what} is not open: use it inside its `async with` block"


class OffsetFileUnreadable(MessagingError):
    """The file of a broadcast consumer's offsets cannot be read.

    Attributes:
        path: the file.
        reason: what is wrong with it.
    """

    path: str
    reason: str
    _template = (
        "offset file {path} cannot be read ({reason}): restore it, or remove it to start from the "
        "consumer's `consume_from`"
    )


class OffsetFileLocked(MessagingError):
    """Another consumer keeps its offsets in the same file: each would overwrite the other's.

    Attributes:
        path: the file.
    """

    path: str
    _template = (
        "another consumer keeps its offsets in {path!r:.300}: give each consumer a file of its own"
    )


class GroupDirectoryError(MessagingError):
    """The directory of `dledger-mq up` cannot be used as asked.

    Attributes:
        path: the directory.
        reason: what is wrong and what to do.
    """

    path: str
    reason: str
    _template = "directory {path}: {reason}"


class InvalidListener(MessagingError):
    """A listener is not a coroutine function, or returned an illegal value.

    It is raised when the consumer is made. If a call of the listener shows the fault, the error is
    logged, and treated as if the listener had raised it.

    Attributes:
        reason: what is wrong.
    """

    reason: str
    _template = (
        "the listener is not valid: {reason}; define it with `async def`, and return nothing, "
        "ConsumeResult.SUCCESS or ConsumeResult.RETRY"
    )


class OpenedTwice(MessagingError):
    """A second `async with` block was begun with a producer, consumer or client."""

    what: str
    _template = "the {what} was opened before: make a new one for each `async with` block"


class InvalidOptions(MessagingError):
    """A number of `PushOptions`, `PopOptions` or a producer is out of range, or is none.

    Attributes:
        name: the name of the option.
        value: the value that was given.
        least, most: its range.
        options: what has this option.
    """

    name: str
    value: object
    least: float
    most: float
    options: str = "PushOptions"
    _template = "{options}: {name} is {value!r:.40}: give {least:.10g} to {most:.10g}"


class InvalidArgument(MessagingError, TypeError):
    """An argument is of another kind than its call takes. Nothing was done.

    Attributes:
        of: the class whose call it is.
        name: the argument.
        kind: the class of what was given.
        wanted: what to give.
    """

    of: str
    name: str
    kind: str
    wanted: str
    _template = "{of}: {name} is of type {kind}: give {wanted}"


class InvalidBatching(MessagingError):
    """A number of `Batching` is out of range, or is none.

    Attributes:
        name: the name of the number.
        value: the value that was given.
        least, most: its range.
    """

    name: str
    value: float
    least: float
    most: float
    _template = "Batching: {name} is {value!r:.40}: give {least:g} to {most:g}"


class InvalidNameServers(MessagingError):
    """The name servers that were given cannot be used.

    Attributes:
        reason: what is wrong and what to do.
    """

    reason: str
    _template = "name servers: {reason}"


class InvalidTls(MessagingError):
    """The certificates that were given cannot be used.

    Attributes:
        reason: what is wrong, and which file.
    """

    reason: str
    _template = "TLS: {reason}"


class InvalidCredentials(MessagingError):
    """The name or the secret of a user cannot be used.

    Attributes:
        reason: what is wrong.
    """

    reason: str
    _template = "credentials: {reason}"


class CertificatesRefused(MessagingError):
    """A folder of certificates cannot be made or used.

    Attributes:
        folder: the folder, or the part of it that is wrong.
        reason: what is wrong and what to do.
    """

    folder: str
    reason: str
    _template = "certificates in {folder}: {reason}"


class InvalidClientId(MessagingError):
    """An illegal client id was given.

    Attributes:
        client_id: the id.
    """

    client_id: str
    _template = "client id {client_id!r:.80}: give 1 to 255 printable characters"


class NotRunning(MessagingError):
    """A process of a test cluster does not run now, or there is none of this name.

    Attributes:
        name: the process.
        running: the processes that run.
    """

    name: str
    running: Sequence[str]

    def _text(self) -> str:
        return (
            f"no process {self.name!r:.80} runs now, only {', '.join(self.running) or 'none'}: "
            "restart it, or name another"
        )


@renamed_fields(seconds="waited_s")
class NoLeaderInTime(MessagingError):
    """A group of a test cluster has had no leader that answers.

    Attributes:
        group: the group.
        waited_s: how long the call waited for one.
    """

    group: str
    waited_s: float
    _template = (
        "group {group!r:.80} has had no leader that answers for {waited_s:g} s: check that most of "
        "its nodes run, and see <node>.log in the cluster's directory"
    )


class ClosedDuringCall(MessagingError):
    """A client of `dledger_mq.blocking` or `dledger_mq.for_asyncio` was closed during a call, which
    may have been carried out.
    """

    _template = "the client was closed during the call: its outcome is unknown"


class CallMisplaced(MessagingError):
    """A call of `dledger_mq.blocking` or `dledger_mq.for_asyncio` was made where it could never
    end: in a process that was forked since, or by code in the loop's own thread, which would wait
    for itself. Nothing was done.

    Attributes:
        reason: which of these, and what to do.
    """

    retry_safe = True

    reason: str
    _template = "the call was not made: {reason}"


class NotIterable(MessagingError):
    """The messages of a push consumer cannot be iterated over.

    Attributes:
        reason: why, and what to do.
    """

    reason: str
    _template = "cannot iterate over the consumer: {reason}"


class OtherLoop(MessagingError):
    """A producer, consumer or client was called in another trio loop than the one it was opened in.

    Attributes:
        what: the object: "producer", or "client" if one is shared between loops.
    """

    what: str
    _template = (
        "the {what} was opened in another trio loop: call it there, or open it by "
        "dledger_mq.blocking; to share no client between loops, pass nameservers= instead of "
        "client="
    )
