"""How often a message may fail before it goes to the dead letters."""

from typing import Final

from remoting.wire.command import Command

# From this version on, clients say how often a message may fail; RocketMQ 3.4.9.
_VERSION_WITH_MAX_TIMES: Final = 121


def max_times(command: Command, said: int | None) -> int | None:
    """How often a message may fail, as the client says; None when the group's number counts."""
    if said is None or said < 0 or command.version < _VERSION_WITH_MAX_TIMES:
        return None
    return said
