"""Acknowledgements of many requests, gathered for one entry at a time."""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.submissions import Then, submit_commands
from broker.pop.limits import MAX_WAITING_ACKS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from remoting.wire.command import Command

Message = TypeVar("Message")


class GatheredAcks(Generic[Message]):
    """Gathers acknowledgements of messages of one kind, and appends them.

    Args:
        command: makes the command that acknowledges messages.
        most: how many messages one command may acknowledge.
        count: called with messages whose acknowledgement is applied.
        freed: called with messages that no longer wait for an entry, also if it was refused.
    """

    def __init__(
        self,
        parts: Parts,
        command: Callable[[Sequence[Message]], LogCommand],
        most: int,
        count: Callable[[Sequence[Message]], None],
        freed: Callable[[Sequence[Message]], None],
    ) -> None:
        self._log = parts.log
        self._confirm = parts.confirm
        self._work = parts.work
        self._command = command
        self._most = most
        self._count = count
        self._freed = freed
        self._messages: list[Message] = []
        self._thens: list[Then] = []
        self._is_in_flight = False

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, messages: Sequence[Message], then: Then) -> None:
        """Acknowledge messages by the next entry; `then` is called when it is applied or refused.

        Raises RequestRefused (2): too many wait.
        """
        if len(self._messages) + len(messages) > MAX_WAITING_ACKS:
            raise RequestRefused.busy(
                f"{len(self._messages)} acknowledgements wait already: send them later"
            )
        self._messages += messages
        self._thens.append(then)

    def when_sure(
        self, origin: Origin, command: Command, do: Callable[[Origin, Command], None]
    ) -> None:
        """Call `do` when this member is known to lead, and has applied all that is committed."""

        def then(refusal: RequestRefused | None) -> None:
            if refusal is None:
                try:
                    do(origin, command)
                except RequestRefused as error:
                    refusal = error
            if refusal is not None:
                origin.send(refusal.reply_to(command))
            else:
                self.flush()

        self._confirm(then)

    def flush(self) -> None:
        """Append the gathered acknowledgements, unless an entry is in flight: then they
        follow it.
        """
        if self._is_in_flight or not self._messages:
            return
        messages, self._messages = self._messages, []
        thens, self._thens = self._thens, []
        self._is_in_flight = True
        commands = [
            self._command(messages[at : at + self._most])
            for at in range(0, len(messages), self._most)
        ]

        def then(refusal: RequestRefused | None) -> None:
            self._is_in_flight = False
            if refusal is None:
                self._count(messages)
            self._freed(messages)
            self._tell(thens, refusal)
            self.flush()

        submit_commands(self._log, commands, then)

    def refuse_waiting(self, refusal: RequestRefused) -> None:
        """Refuse all requests whose acknowledgements are not in flight."""
        thens, self._thens, self._messages = self._thens, [], []
        self._tell(thens, refusal)

    def _tell(self, thens: Sequence[Then], refusal: RequestRefused | None) -> None:
        self._work.each("answering an acknowledgement", thens, lambda then: then(refusal))
