"""A table from request code to the function that answers it."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from remoting.net.answering import Steps
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

Origin = TypeVar("Origin")


class DispatchTable(Generic[Origin]):
    """Request codes and the functions that answer them.

    A function takes the origin of the request (such as its connection) and the request. It returns
    the reply, or steps to it (see `answering`), or None if there is none or it is sent later.
    """

    def __init__(self) -> None:
        self._functions: dict[int, Callable[[Origin, Command], Command | Steps | None]] = {}

    def add(
        self,
        codes: int | Iterable[int],
        function: Callable[[Origin, Command], Command | Steps | None],
    ) -> None:
        """Let `function` answer the request code or codes.

        Raises ValueError if a code has a function already: two features claim it.
        """
        for code in (codes,) if isinstance(codes, int) else codes:
            if code in self._functions:
                raise ValueError(f"request code {code} has two functions: keep one")
            self._functions[int(code)] = function

    def handle(self, origin: Origin, command: Command) -> Command | Steps | None:
        """Call the function for `command`; a code without one is answered as not supported."""
        function = self._functions.get(command.code)
        if function is None:
            return unsupported(command)
        return function(origin, command)

    def __contains__(self, code: int) -> bool:
        return code in self._functions

    def codes(self) -> list[int]:
        return sorted(self._functions)


def unsupported(command: Command, why: str = "") -> Command:
    """Return the reply for an unsupported request code, in RocketMQ's words, with a reason."""
    remark = f" request type {command.code} not supported"
    return command.reply(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f"{remark}: {why}" if why else remark
    )
