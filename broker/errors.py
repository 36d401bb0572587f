"""Errors of the broker. Each has fields, and a message of one line that says what to do."""

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
        setting: its name on the command line.
    """

    setting: str
    problem: str
    _template = "{setting}: {problem}"


class FeatureClash(BrokerError):
    """Two features claim the same request code, command or name. Raised when the program starts."""

    problem: str


class EntryTooNew(BrokerError):
    """The log holds a command of a newer broker. Skipping it would make the members differ.

    Attributes:
        version: the command's format version.
        kind: the command's kind; None if it could not be read.
        index: of the entry; -1 until it is known.
    """

    version: int
    kind: int | None = None
    index: int = -1

    @property
    def what(self) -> str:
        kind = "" if self.kind is None else f"kind {self.kind} of "
        return f"a broker command of {kind}version {self.version}"

    def _text(self) -> str:
        return f"the log holds {self.what}, which this program does not know: upgrade this member"


class CommandMalformed(BrokerError):
    """A log entry has the mark of a broker command but cannot be read. Every member skips it."""

    reason: str
    _template = "not a broker command ({reason}): only brokers may append to this log"


class SnapshotUnreadable(BrokerError):
    """A snapshot of the state holds something that this program does not write."""

    reason: str
    _template = "the snapshot cannot be read ({reason}): start with the program that wrote it"


class RequestRefused(BrokerError):
    """A request that cannot be carried out. It becomes the reply.

    Attributes:
        code: a `remoting.wire.codes.ResponseCode`.
        remark: one line that says what is wrong and what to do.
    """

    code: int
    remark: str
    _template = "{remark}"

    def __init__(self, code: int, remark: str) -> None:
        self.code = code
        self.remark = remark_of(remark)

    def reply_to(self, command: Command) -> Command:
        return command.reply(self.code, remark=self.remark)

    @classmethod
    def failed(cls, remark: str) -> Self:
        """Refuse with code 1: the request failed, or what it names does not exist here."""
        return cls(ResponseCode.SYSTEM_ERROR, remark)

    @classmethod
    def busy(cls, remark: str) -> Self:
        """Refuse with code 2: too much is waiting, or stored."""
        return cls(ResponseCode.SYSTEM_BUSY, remark)

    @classmethod
    def illegal(cls, remark: str) -> Self:
        """Refuse with code 13: such a message is never accepted."""
        return cls(ResponseCode.MESSAGE_ILLEGAL, remark)

    @classmethod
    def not_available(cls, remark: str) -> Self:
        """Refuse with code 14: another member has to be asked."""
        return cls(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    @classmethod
    def forbidden(cls, remark: str) -> Self:
        """Refuse with code 16: the settings do not allow it."""
        return cls(ResponseCode.NO_PERMISSION, remark)

    @classmethod
    def no_topic(cls, remark: str) -> Self:
        return cls(ResponseCode.TOPIC_NOT_EXIST, remark)

    @classmethod
    def no_group(cls, remark: str) -> Self:
        return cls(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    @classmethod
    def invalid(cls, remark: str) -> Self:
        """Refuse with code 29: a name or a value is invalid."""
        return cls(ResponseCode.INVALID_PARAMETER, remark)


class NeverStored(RequestRefused):
    """The message can never be stored: it is unreadable, too large for an entry, or its topic would
    be one too many. Sending it again does not help.
    """


class EntryPassedOver(RequestRefused):
    """The log took an entry, and the state machine refused it: nothing was changed."""
