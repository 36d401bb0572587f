"""What can be wrong with a message. The error has one line that says what to do."""

from remoting.wire.errors import RemotingError


class MessageMalformed(RemotingError):
    """A message record, batch, id or body that cannot be read, or cannot be written as asked.

    Attributes:
        reason: what is wrong and what to do.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
