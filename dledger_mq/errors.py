"""Errors of the client. The classes tell what is certain; the fields tell the rest.

Everything is a `MessagingError`. A send that was not acknowledged is a `SendFailed`, and that is
either `Rejected` (certainly not stored, sending it again is safe; `InvalidMessage` and `WindowFull`
are kinds of it) or `OutcomeUnknown` (it may be stored, sending it again may store it twice).
"""

from collections.abc import Sequence

from dledger_mq.send_result import SendResult


class MessagingError(Exception):
    """Root of every error this package raises on purpose."""


class SendFailed(MessagingError):
    """A send did not end in an acknowledgement.

    Attributes:
        topic: where the message was to go.
        reason: what happened last, without advice.
        attempts: how many times the message was handed to a connection.
        code: the broker's response code, or None when no broker answered.
    """

    advice = ""

    def __init__(self, topic: str, reason: str, attempts: int, code: int | None = None) -> None:
        self.topic = topic
        self.reason = reason
        self.attempts = attempts
        self.code = code
        super().__init__(f"message to {topic!r:.140} not acknowledged ({reason}): {self.advice}")


class Rejected(SendFailed):
    """The message is certainly not stored: no attempt reached a broker, or each was refused."""

    advice = "it is not stored, sending it again is safe"


class InvalidMessage(Rejected):
    """No broker would take the message as it is; nothing was sent."""

    advice = "change it"

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason, 0)


class WindowFull(Rejected):
    """As many sends as allowed wait for their answer; nothing was sent."""

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
        outcomes: for each message in its order, its `SendResult` or its `SendFailed`.
        failed: how many of them failed.
    """

    def __init__(self, outcomes: "Sequence[SendResult | SendFailed]") -> None:
        self.outcomes = outcomes
        failures = [item for item in outcomes if isinstance(item, SendFailed)]
        self.failed = len(failures)
        first = f" ({failures[0].reason}): {failures[0].advice}" if failures else ""
        super().__init__(f"{self.failed} of {len(outcomes)} messages not acknowledged{first}")


class InvalidCondition(MessagingError):
    """A broker cannot filter by a condition.

    Attributes:
        topic: whose messages were to be filtered.
        reason: what the broker said.
    """

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"the condition for topic {topic!r:.140} cannot be served: {reason}")


class NoReply(MessagingError):
    """A question is stored, and no reply has come in time; a consumer may still deal with it.

    Attributes:
        topic: the question's topic.
        message_id: the question's id.
        timeout_seconds: how long was waited.
    """

    def __init__(self, topic: str, message_id: str, timeout_seconds: float) -> None:
        self.topic = topic
        self.message_id = message_id
        self.timeout_seconds = timeout_seconds
        super().__init__(
            f"no reply to question {message_id} of topic {topic!r:.140} within "
            f"{timeout_seconds:g} s: see whether a consumer replies to it"
        )


class NoTransactionCheck(MessagingError):
    """A producer without a check was to begin a transaction.

    Attributes:
        group: the producer group.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"producer group {group!r:.140} has no check, so that no broker could find out how a "
            "transaction has ended whose commit was lost: give one, Producer(..., check=...)"
        )


class TransactionRefused(MessagingError):
    """A broker refused to end a transaction so, for certain: it ended otherwise before, or the
    broker knows of none.

    Attributes:
        topic: the message's topic.
        message_id: the message's id.
        reason: what the broker said.
    """

    def __init__(self, topic: str, message_id: str, reason: str) -> None:
        self.topic = topic
        self.message_id = message_id
        self.reason = reason
        super().__init__(
            f"transaction {message_id} of topic {topic!r:.140} cannot end so ({reason}): see "
            "whether the check has answered for it, or too late"
        )


class RouteNotFound(MessagingError):
    """No name server knows the topic.

    Attributes:
        topic: the topic.
        nameservers: the name servers that were asked.
    """

    def __init__(self, topic: str, nameservers: tuple[str, ...]) -> None:
        self.topic = topic
        self.nameservers = nameservers
        super().__init__(
            f"name servers {', '.join(nameservers)} know no topic {topic!r:.140}: create it "
            "(dledger-mq topic create), or check that its brokers run and name these name servers"
        )


class NoDeadLetters(RouteNotFound):
    """A consumer group never had a dead letter, or does not exist.

    Attributes:
        group: the group.
    """

    def __init__(self, group: str, topic: str, nameservers: tuple[str, ...]) -> None:
        super().__init__(topic, nameservers)
        self.group = group
        self.args = (f"group {group!r:.140} has no dead letters: see that its name is right",)


class NoBrokerLeads(RouteNotFound):
    """No name server knows the topic, because no group of brokers has a leader to tell of it.

    Attributes:
        groups: the groups of brokers that are known all the same.
    """

    def __init__(self, topic: str, nameservers: tuple[str, ...], groups: tuple[str, ...]) -> None:
        super().__init__(topic, nameservers)
        self.groups = groups
        self.args = (no_broker_leads(nameservers, groups),)


def no_broker_leads(nameservers: Sequence[str], groups: Sequence[str] = ()) -> str:
    """What is the matter where name servers know no leader, and what to do."""
    who = f"no broker of {', '.join(groups)} leads" if groups else "no broker is registered"
    return (
        f"{who} at name servers {', '.join(nameservers)}: wait for an election; without a quorum "
        "there is none, so start the brokers that are down (and check which name servers they name)"
    )


class NoMaster(MessagingError):
    """The topic's route names no broker that takes requests for the queue now.

    Attributes:
        topic: the topic.
        broker_name: the group of brokers, or an empty text when the route has no queue at all.
    """

    def __init__(self, topic: str, broker_name: str) -> None:
        self.topic = topic
        self.broker_name = broker_name
        who = f"group {broker_name!r:.80} has no leader" if broker_name else "there is no queue"
        super().__init__(f"topic {topic!r:.140}: {who} now; wait for an election, or start brokers")


class NameServersUnreachable(MessagingError):
    """None of the name servers answered.

    Attributes:
        nameservers: the name servers that were asked.
        reason: what the last one failed with.
    """

    def __init__(self, nameservers: tuple[str, ...], reason: str) -> None:
        self.nameservers = nameservers
        self.reason = reason
        super().__init__(
            f"no name server of {', '.join(nameservers)} answers ({reason}): check that one runs"
        )


class NoNameServers(NameServersUnreachable):
    """What listens at each address given for a name server speaks another protocol.

    Calls raise it, or fail with it as the reason, at once: a retry is useless.
    """

    def __init__(self, nameservers: tuple[str, ...], reason: str) -> None:
        self.nameservers = nameservers
        self.reason = reason
        MessagingError.__init__(
            self,
            f"{', '.join(nameservers)}: no name server there ({reason}): give the addresses of "
            "RocketMQ's name servers",
        )


class RequestRefused(MessagingError):
    """A broker or name server answered with an error code.

    Attributes:
        address: the server that answered, "host:port".
        code: a `remoting.wire.codes.ResponseCode`, or a number it does not know.
        remark: the text it gave.
        what: what was asked for.
    """

    def __init__(self, address: str, what: str, code: int, remark: str | None) -> None:
        self.address = address
        self.what = what
        self.code = code
        self.remark = remark or ""
        super().__init__(f"{address} refused to {what} (code {code}): {self.remark or 'no reason'}")


class GroupInUse(MessagingError):
    """A client already holds a consumer of this group; brokers could not tell the two apart.

    Attributes:
        group: the consumer group.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"this client already has a consumer of group {group!r:.140}: "
            "subscribe it to more topics, or open another client"
        )


class ClientClosed(MessagingError):
    """A producer, consumer or client was used outside its `async with` block."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"the {what} is not open: use it inside its `async with` block")


class OffsetFileUnreadable(MessagingError):
    """The file of a broadcast consumer's offsets cannot be read.

    Attributes:
        path: the file.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"offset file {path} cannot be read ({reason}): "
            "restore it, or remove it to start from the consumer's `consume_from`"
        )


class GroupDirectoryError(MessagingError):
    """The directory of `dledger-mq up` cannot be used as asked.

    Attributes:
        path: the directory.
        reason: what is wrong and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"directory {path}: {reason}")


class InvalidListener(MessagingError):
    """A consumer's listener is not what it has to be.

    At construction it is raised. When a call of the listener shows it, it is logged, and the
    messages of that call are treated as if the listener had raised it.

    Attributes:
        reason: what is wrong.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the listener is not valid: {reason}; define it with `async def`, and return nothing, "
            "ConsumeResult.SUCCESS or ConsumeResult.RETRY"
        )


class OpenedTwice(MessagingError):
    """A second `async with` block was begun with a producer, consumer or client."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"the {what} was opened before: make a new one for each `async with` block"
        )


class InvalidOptions(MessagingError):
    """A number of `PushOptions` or `PopOptions` is out of range.

    Attributes:
        name: which number.
        value: what was given.
        least, most: its range.
    """

    def __init__(
        self, name: str, value: float, least: float, most: float, options: str = "PushOptions"
    ) -> None:
        self.name = name
        self.value = value
        self.least = least
        self.most = most
        super().__init__(f"{options}: {name} is {value:g}: give {least:g} to {most:g}")


class InvalidBatching(MessagingError):
    """A number of `Batching` is out of range.

    Attributes:
        name: which number.
        value: what was given.
        least, most: its range.
    """

    def __init__(self, name: str, value: float, least: float, most: float) -> None:
        self.name = name
        self.value = value
        self.least = least
        self.most = most
        super().__init__(f"Batching: {name} is {value:g}: give {least:g} to {most:g}")


class InvalidNameServers(MessagingError):
    """The name servers that were given cannot be used.

    Attributes:
        reason: what is wrong and what to do.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"name servers: {reason}")


class InvalidClientId(MessagingError):
    """A client cannot have the id that was given.

    Attributes:
        client_id: the id.
    """

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        super().__init__(f"client id {client_id!r:.80}: give 1 to 255 printable characters")


class NotRunning(MessagingError):
    """A process of a test cluster does not run, so nothing can be done to it.

    Attributes:
        name: the process.
        running: the processes that run.
    """

    def __init__(self, name: str, running: Sequence[str]) -> None:
        self.name = name
        self.running = running
        super().__init__(
            f"no process {name!r:.80} runs now, only {', '.join(running) or 'none'}: "
            "restart it, or name another"
        )


class NoLeaderInTime(MessagingError):
    """A group of a test cluster has had no leader that answers.

    Attributes:
        group: the group.
        seconds: how long it was waited for.
    """

    def __init__(self, group: str, seconds: float) -> None:
        self.group = group
        self.seconds = seconds
        super().__init__(
            f"group {group!r:.80} has had no leader that answers for {seconds:g} s: check that "
            "most of its nodes run, and see <node>.log in the cluster's directory"
        )


class ClosedDuringCall(MessagingError):
    """A client of `dledger_mq.blocking` or `dledger_mq.for_asyncio` was closed during a call.

    What the call should do may have happened.
    """

    def __init__(self) -> None:
        super().__init__("the client was closed during the call: its outcome is unknown")


class NotIterable(MessagingError):
    """The messages of a push consumer cannot be iterated over.

    Attributes:
        reason: why, and what to do.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"cannot iterate over the consumer: {reason}")


class OtherLoop(MessagingError):
    """A client is shared with an object of another trio loop, which would corrupt both."""

    def __init__(self) -> None:
        super().__init__(
            "the shared client was opened in another trio loop: "
            "pass nameservers= instead of client="
        )
