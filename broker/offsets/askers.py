"""Which clients know a refusal of an offset (14) from the answer that there is none. Pure.

Java's clients of version 4 and the C++ client do not: whatever a broker answers but an offset, they
take it that the group has none, and a consumer that begins with a queue goes to its end. What the
group has not consumed is then lost to it. They ask again when there is no answer.
Source: RemoteBrokerOffsetStore.readOffset of RocketMQ 4.9 and 5.3.
"""

from typing import Final

from remoting.wire.codes import LanguageCode
from remoting.wire.command import Command

# RocketMQ 5.0.0, whose client has an exception of its own for a group without an offset.
_JAVA_VERSION_5: Final = 413

_OTHERS: Final = frozenset({LanguageCode.GO, LanguageCode.PYTHON})


def knows_refusals_of_offsets(command: Command) -> bool:
    """Whether the client that asks may be told that this member cannot answer."""
    if command.language == LanguageCode.JAVA:
        return command.version >= _JAVA_VERSION_5
    return command.language in _OTHERS
