"""The errors of messages. Each has one line that says what to do."""

from remoting.wire.errors import RemotingError


class MessageMalformed(RemotingError):
    """A message record, batch, id or body that cannot be read, or cannot be written as asked.

    Attributes:
        reason: what is wrong and what to do.
    """

    reason: str


class CompressionMissing(MessageMalformed):
    """A body is compressed by a library that is not installed. Nothing is wrong with the message.

    Attributes:
        kind: "LZ4" or "ZSTD".
        library: the missing library.
    """

    def __init__(self, kind: str, library: str) -> None:
        self.kind = kind
        self.library = library
        super().__init__(
            f"body is compressed by {kind}, which needs the library {library}: "
            "pip install 'dledger[compression]'"
        )
