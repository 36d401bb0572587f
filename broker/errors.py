"""Errors of the broker. Each has fields, and one line that says what to do."""

from typing import Final


class BrokerError(Exception):
    """Root of every error this package raises on purpose."""


class SettingInvalid(BrokerError):
    """A setting is missing, malformed, or contradicts another one.

    Attributes:
        setting: its name, as it is given on the command line.
        problem: what is wrong with it.
    """

    def __init__(self, setting: str, problem: str) -> None:
        self.setting = setting
        self.problem = problem
        super().__init__(f"{setting}: {problem}")


class FeatureClash(BrokerError):
    """Two features claim the same request code, command or name; found when the program starts."""


class EntryTooNew(BrokerError):
    """The log holds a command of a newer broker; guessing at it would make the members differ.

    Attributes:
        version: the command's format version.
        kind: what it is, or None when not even that could be read.
        index: of the entry, once it is known; else -1.
    """

    def __init__(self, version: int, kind: int | None = None) -> None:
        self.version = version
        self.kind = kind
        self.index = -1
        what = f"version {version}" if kind is None else f"kind {kind} of version {version}"
        self.what = f"a broker command of {what}"
        super().__init__(
            f"the log holds {self.what}, which this program does not know: upgrade this member"
        )


class CommandMalformed(BrokerError):
    """A log entry looks like a broker command and is none. Every member passes it over alike.

    Attributes:
        reason: what is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"not a broker command ({reason}): only brokers may append to this log")


class SnapshotUnreadable(BrokerError):
    """A snapshot of the state holds something else than this program writes.

    Attributes:
        reason: what.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"the snapshot cannot be read ({reason}): start with the program that wrote it"
        )


# Clients print a remark on one line, and the C++ client copies it to its log.
_MAX_REMARK_CHARACTERS: Final = 300


class RequestRefused(BrokerError):
    """A request that cannot be carried out; it becomes the reply.

    Attributes:
        code: a `remoting.wire.codes.ResponseCode`.
        remark: what is wrong and what to do, on one line.
    """

    def __init__(self, code: int, remark: str) -> None:
        line = "".join([character if character.isprintable() else " " for character in remark])
        self.code = code
        self.remark = line[:_MAX_REMARK_CHARACTERS]
        super().__init__(self.remark)


class NeverStored(RequestRefused):
    """No entry of the log can hold the message, or it cannot be read, or there are too many topics
    for its own: it is no use to try again.
    """


class EntryPassedOver(RequestRefused):
    """The log took an entry, and the state did not: nothing was changed."""
