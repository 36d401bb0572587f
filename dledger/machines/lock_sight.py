"""Follows one lock in the log, for a client that waits for it. Pure."""

from __future__ import annotations

from dledger.entry import Entry, Magic
from dledger.errors import Fatal
from dledger.machines.command import Command, CommandRefused, decode_command
from dledger.machines.replicated_lock import Holding
from dledger.sessions.session_entry import AppendEntry, PlainEntry, decode, is_envelope

_NORMAL = int(Magic.NORMAL)


class LockSight:
    """Follows the commands to one lock.

    Attributes:
        holding: the holder, with the renewals seen so far.
    """

    def __init__(self, locks: str, lock: str, holding: Holding) -> None:
        self._locks = locks
        self._lock = lock
        self.holding = holding

    def ends_by(self, entry: Entry) -> bool:
        """Return whether the lock may be free after the entry; note a renewal.

        A command that changes nothing, such as the release by a client that waits, does not count.
        """
        command = _command_in(entry)
        if command is None or command.name != self._locks:
            return False
        match command.operation, list(command.arguments):
            case "renew", [self._lock, self.holding.holder]:
                self.holding = self.holding._replace(beat=self.holding.beat + 1)
                return False
            case "release", [self._lock, self.holding.holder]:
                return True
            case "expire", [self._lock, self.holding.token, self.holding.beat]:
                return True
            case _:
                return False


def _command_in(entry: Entry) -> Command | None:
    """Return the command in an entry, in a session or without one, or None."""
    if entry.magic != _NORMAL:
        return None
    body = entry.body
    try:
        if is_envelope(body):
            envelope = decode(body)
            if not isinstance(envelope, AppendEntry | PlainEntry):
                return None
            body = envelope.body
        return decode_command(body)
    except (CommandRefused, Fatal):
        return None  # an entry of another state machine, or of a later version
