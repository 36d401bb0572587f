"""Replies to requests that are carried out when an entry of the log is applied."""

from collections.abc import Callable

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.origin import Origin
from remoting.wire.command import Command


def replying(
    origin: Origin, command: Command, reply: Callable[[], Command | None] | None = None
) -> Then:
    """Answers a request when its change is applied, or with why it was not.

    Args:
        origin: the client.
        command: its request.
        reply: makes the answer, or returns None if that follows; without it, success is answered.
    """

    def then(refusal: RequestRefused | None) -> None:
        if refusal is not None:
            origin.send(refusal.reply_to(command))
        elif reply is None:
            origin.send(command.reply())
        elif (answer := reply()) is not None:
            origin.send(answer)

    return then
