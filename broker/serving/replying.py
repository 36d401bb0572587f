"""Replies to requests that wait for an entry of the log."""

from collections.abc import Callable

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.origin import Origin
from remoting.wire.command import Command


def replying(
    origin: Origin, command: Command, reply: Callable[[], Command | None] | None = None
) -> Then:
    """Return a callback that answers a request when its change is applied or refused.

    Args:
        origin: the client.
        command: its request.
        reply: makes the answer, or returns None if it sends one itself later; None for success.
    """

    def then(refusal: RequestRefused | None) -> None:
        if refusal is not None:
            origin.send(refusal.reply_to(command))
        elif reply is None:
            origin.send(command.reply())
        elif (answer := reply()) is not None:
            origin.send(answer)

    return then
