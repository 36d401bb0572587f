"""Errors of the broker. Each has fields, and one line that says what to do."""

from typing import Self

from dledger.declared_error import DeclaredError
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.quoted import remark_of


class BrokerError(DeclaredError):
    """Root of every error this package raises on purpose."""


class SettingInvalid(BrokerError):
    """A setting is missing, malformed, or contradicts another one.

    Attributes:
        setting: its name, as it is given on the command line.
        problem: what is wrong with it.
    """

    setting: str
    problem: str
    _template = "{setting}: {problem}"


class FeatureClash(BrokerError):
    """Two features claim the same request code, command or name; found when the program starts."""

    problem: str


class EntryTooNew(BrokerError):
    """The log holds a command of a newer broker; guessing at it would make the members differ.

    Attributes:
        version: the command's format version.
        kind: what it is, or None when not even that could be read.
        index: of the entry, once it is known; else -1.
    """

    version: int
    kind: int | None = None
    index: int = -1

    @property
    def what(self) -> str:
        """What the log holds, in words."""
        kind = "" if self.kind is None else f"kind {self.kind} of "
        return f"a broker command of {kind}version {self.version}"

    def _text(self) -> str:
        return f"the log holds {self.what}, which this program does not know: upgrade this member"


class CommandMalformed(BrokerError):
    """A log entry looks like a broker command and is none. Every member passes it over alike.

    Attributes:
        reason: what is wrong with it.
    """

    reason: str
    _template = "not a broker command ({reason}): only brokers may append to this log"


class SnapshotUnreadable(BrokerError):
    """A snapshot of the state holds something else than this program writes.

    Attributes:
        reason: what.
    """

    reason: str
    _template = "the snapshot cannot be read ({reason}): start with the program that wrote it"


class RequestRefused(BrokerError):
    """A request that cannot be carried out; it becomes the reply.

    The class methods make one of each usual code.

    Attributes:
        code: a `remoting.wire.codes.ResponseCode`.
        remark: what is wrong and what to do, on one line.
    """

    code: int
    remark: str
    _template = "{remark}"

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark_of(remark)

    def reply_to(self, command: Command) -> Command:
        """The reply to the request."""
        return command.reply(self.code, remark=self.remark)

    @classmethod
    def failed(cls, remark: str) -> Self:
        """(1) It failed, or what it names is not here."""
        return cls(ResponseCode.SYSTEM_ERROR, remark)

    @classmethod
    def busy(cls, remark: str) -> Self:
        """(2) Too much waits, or is kept."""
        return cls(ResponseCode.SYSTEM_BUSY, remark)

    @classmethod
    def illegal(cls, remark: str) -> Self:
        """(13) No such message is taken."""
        return cls(ResponseCode.MESSAGE_ILLEGAL, remark)

    @classmethod
    def not_available(cls, remark: str) -> Self:
        """(14) Not done here: ask another member."""
        return cls(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    @classmethod
    def forbidden(cls, remark: str) -> Self:
        """(16) Settings do not allow it."""
        return cls(ResponseCode.NO_PERMISSION, remark)

    @classmethod
    def no_topic(cls, remark: str) -> Self:
        """(17) There is no such topic."""
        return cls(ResponseCode.TOPIC_NOT_EXIST, remark)

    @classmethod
    def no_group(cls, remark: str) -> Self:
        """(26) There is no such consumer group."""
        return cls(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    @classmethod
    def invalid(cls, remark: str) -> Self:
        """(29) A name or a value that cannot be."""
        return cls(ResponseCode.INVALID_PARAMETER, remark)


class NeverStored(RequestRefused):
    """No entry of the log can hold the message, or it cannot be read, or there are too many topics
    for its own: it is no use to try again.
    """


class EntryPassedOver(RequestRefused):
    """The log took an entry, and the state did not: nothing was changed."""
