"""Appends of commands that answer requests once they are applied."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from broker.errors import RequestRefused
from broker.log.append_outcome import refusal_of, refused_append
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.log.replicated_log import Log
from dledger import Appended, DLedgerError

# Called with None when the change is applied here, or with the reason why it is not.
Then: TypeAlias = Callable[[RequestRefused | None], None]


def submit_commands(log: Log, commands: Sequence[LogCommand], then: Then) -> None:
    """Append commands next to each other; `then` is called once, perhaps before this returns."""

    def done(outcome: list[Appended] | DLedgerError) -> None:
        then(refusal_of(outcome))

    try:
        log.submit([encode_log_command(command) for command in commands], done)
    except DLedgerError as error:
        then(refused_append(error))
