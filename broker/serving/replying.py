"""Replies to requests that are carried out when an entry of the log is applied."""

from broker.errors import RequestRefused
from broker.log.submissions import Then
from broker.serving.origin import Origin
from remoting.wire.command import Command


def replying(origin: Origin, command: Command) -> Then:
    """Answers a request when its change is applied."""

    def then(refusal: RequestRefused | None) -> None:
        origin.send(
            command.reply()
            if refusal is None
            else command.reply(refusal.code, remark=refusal.remark)
        )

    return then
