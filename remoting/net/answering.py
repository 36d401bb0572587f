"""Answering requests one by one, so that an error in one does not touch the others."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from remoting.net.address import Address
from remoting.net.bounded_log import about_client
from remoting.wire.codes import ResponseCode, request_name
from remoting.wire.command import Command
from remoting.wire.errors import FrameError, RemotingError

_log = logging.getLogger(__name__)

# Clients print the remark on one line, and the C++ client copies it to its log.
_MAX_REMARK_CHARACTERS: Final = 300


class Answerable(Protocol):
    """What a reply can be sent on."""

    @property
    def peer(self) -> Address:
        """The client's address."""

    def send(self, command: Command) -> None:
        """Queue a command."""


Origin = TypeVar("Origin", bound=Answerable)


def answer_each(
    origin: Origin,
    commands: Sequence[Command],
    answer: Callable[[Origin, Command], Command | None],
) -> None:
    """Call `answer` for each command and send what it returns.

    What it raises becomes the reply SYSTEM_ERROR and a line in the log: without a traceback for a
    `RemotingError`, which says what is wrong with the request; with one for anything else.

    Args:
        origin: where the commands came from.
        commands: requests.
        answer: returns the reply, or None when there is none or it is sent later.
    """
    for command in commands:
        try:
            reply = answer(origin, command)
            if reply is not None:
                origin.send(reply)
        except Exception as error:
            log_failure(origin.peer, command, error)
            origin.send(failure_reply(command, error))


def failure_reply(command: Command, error: Exception) -> Command:
    """The reply SYSTEM_ERROR with the error as its remark, on one line."""
    text = str(error) if isinstance(error, RemotingError) else f"{type(error).__name__}: {error}"
    line = "".join([character if character.isprintable() else " " for character in text])
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=line[:_MAX_REMARK_CHARACTERS])


def log_failure(peer: Address, command: Command, error: Exception) -> None:
    """Write one line, or for an error that is ours a line and the traceback."""
    name = request_name(command.code)
    if isinstance(error, RemotingError) and not isinstance(error, FrameError):
        about = about_client(peer.host)
        _log.warning("request %s of %s refused: %s", name, peer, error, extra=about)
    else:
        _log.error("request %s of %s failed", name, peer, exc_info=error)
