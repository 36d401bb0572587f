"""Answers requests one by one, so that an error in one does not affect the others."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from remoting.net.address import Address
from remoting.net.bounded_log import about_client
from remoting.wire.codes import ResponseCode, request_name
from remoting.wire.command import Command
from remoting.wire.errors import FrameError, RemotingError
from remoting.wire.quoted import quoted, remark_of

_log = logging.getLogger(__name__)

# An answer that takes long: a generator that yields after each step, of a millisecond at most, and
# returns the reply, or None. Its errors are answered like those of a function.
Steps: TypeAlias = Generator[None, None, Command | None]


class Answerable(Protocol):
    """The origin of a request, to which a reply can be sent."""

    @property
    def peer(self) -> Address: ...

    @property
    def is_turn_over(self) -> bool: ...

    def send(self, command: Command) -> None: ...

    def go_on(self, steps: Iterator[object]) -> None:
        """Take steps, before further commands are handed over."""


Origin = TypeVar("Origin", bound=Answerable)


def answer_each(
    origin: Origin,
    commands: Sequence[Command],
    answer: Callable[[Origin, Command], Command | Steps | None],
) -> int:
    """Call `answer` for each command and send the reply, while the turn lasts.

    An exception becomes the reply SYSTEM_ERROR and a line in the log: without a traceback for a
    `RemotingError`, which describes a wrong request; with one for any other.

    Args:
        origin: where the commands came from.
        commands: requests.
        answer: returns the reply; or steps to it; or None if there is none or it is sent later.

    Returns:
        How many commands were answered. Those behind an answer in steps wait for it.
    """
    for count, command in enumerate(commands, 1):
        try:
            reply = answer(origin, command)
            if isinstance(reply, Command):
                origin.send(reply)
            elif reply is not None:
                origin.go_on(_answer_in_steps(origin, command, reply))
                return count
        except Exception as error:
            log_failure(origin.peer, command, error)
            origin.send(failure_reply(command, error))
        if origin.is_turn_over:
            return count
    return len(commands)


def _answer_in_steps(origin: Answerable, command: Command, steps: Steps) -> Iterator[None]:
    try:
        reply = yield from steps
        if reply is not None:
            origin.send(reply)
    except Exception as error:
        log_failure(origin.peer, command, error)
        origin.send(failure_reply(command, error))


def failure_reply(command: Command, error: Exception) -> Command:
    """Return the reply SYSTEM_ERROR with the error as its remark, on one line."""
    text = str(error) if isinstance(error, RemotingError) else f"{type(error).__name__}: {error}"
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark_of(text))


def log_failure(peer: Address, command: Command, error: Exception) -> None:
    """Log one line, with the traceback if the error is a defect of this program."""
    name = request_name(command.code)
    if isinstance(error, RemotingError) and not isinstance(error, FrameError):
        about = about_client(peer.host)
        _log.warning("request %s of %s refused: %s", name, peer, quoted(error, 300), extra=about)
    else:
        _log.error("request %s of %s failed", name, peer, exc_info=error)
