"""Acknowledgements of many requests, gathered for one entry at a time."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from broker.errors import RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.submissions import Then, submit_commands
from broker.pop.limits import MAX_WAITING_ACKS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from remoting.wire.command import Command

Message = TypeVar("Message")
Message_contra = TypeVar("Message_contra", contravariant=True)


class Acknowledged(Protocol[Message_contra]):
    """What acknowledgements need to know of one kind of messages."""

    def is_out(self, message: Message_contra) -> bool:
        """Return whether a message is in flight, and not acknowledged."""
        ...

    def given_again(self, message: Message_contra) -> RequestRefused | None:
        """Return the refusal (208) if a message was given to another consumer since."""
        ...

    def count(self, messages: Sequence[Message_contra]) -> None:
        """Count messages whose acknowledgement is applied."""
        ...

    def free(self, messages: Sequence[Message_contra]) -> None:
        """Let pops go on that waited for messages; also if the acknowledgement was refused."""
        ...


class GatheredAcks(Generic[Message]):
    """Gathers acknowledgements of messages of one kind, and appends them.

    Args:
        kind: the kind of messages.
        command: makes the command that acknowledges messages.
        most: how many messages one command may acknowledge.
    """

    def __init__(
        self,
        parts: Parts,
        kind: Acknowledged[Message],
        command: Callable[[Sequence[Message]], LogCommand],
        most: int,
    ) -> None:
        self._kind = kind
        self._log = parts.log
        self._confirm = parts.confirm
        self._work = parts.work
        self._command = command
        self._most = most
        self._messages: list[Message] = []
        self._thens: list[Then] = []
        self._is_in_flight = False

    def __len__(self) -> int:
        return len(self._messages)

    def ack(self, message: Message, origin: Origin, command: Command) -> None:
        """Acknowledge a message.

        A message that is not in flight was acknowledged before, unless this member lost leadership
        and does not know of the pop: so the group confirms it first. A message that was given to
        another consumer meanwhile remains in flight.

        Raises RequestRefused: (2) too many wait, (208) it was given again.
        """
        if self._kind.is_out(message):
            self._ack_out(message, origin, command)
        else:
            self.when_sure(origin, command, partial(self._ack_surely, message))

    def _ack_surely(self, message: Message, origin: Origin, command: Command) -> None:
        if self._kind.is_out(message):
            self._ack_out(message, origin, command)
        else:
            origin.send(command.reply())

    def _ack_out(self, message: Message, origin: Origin, command: Command) -> None:
        if (given_again := self._kind.given_again(message)) is not None:
            raise given_again

        def then(refusal: RequestRefused | None) -> None:
            if refusal is None:
                # Another pop may have been applied before the acknowledgement.
                refusal = self._kind.given_again(message)
            origin.send(command.reply() if refusal is None else refusal.reply_to(command))

        self.add([message], then)

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
                self._kind.count(messages)
            self._kind.free(messages)
            self._tell(thens, refusal)
            self.flush()

        submit_commands(self._log, commands, then)

    def refuse_waiting(self, refusal: RequestRefused) -> None:
        """Refuse all requests whose acknowledgements are not in flight."""
        thens, self._thens, self._messages = self._thens, [], []
        self._tell(thens, refusal)

    def _tell(self, thens: Sequence[Then], refusal: RequestRefused | None) -> None:
        self._work.each("answering an acknowledgement", thens, lambda then: then(refusal))
