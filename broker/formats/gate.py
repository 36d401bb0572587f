"""Raises the format of the log to the newest one, once all members can read it.

Members are restarted with a new program one after the other. Until the last one has been, the
leader writes what the oldest one reads: new forms of commands and records only if
`Formats.format_version` allows them, so behind the command that raised the format.
"""

from collections.abc import Callable
from typing import Final

from broker.errors import RequestRefused
from broker.formats.commands import RaiseFormat
from broker.formats.state import FORMATS
from broker.log.entry import FORMAT_VERSION
from broker.log.submissions import submit_commands
from broker.serving.parts import Parts, Shared

# The newest version that all voters and learners read; None until all have told theirs.
READ_BY_ALL: Final[Shared[Callable[[], int | None]]] = Shared("version read by all")


class FormatGate:
    def __init__(self, parts: Parts) -> None:
        self._formats = parts.state[FORMATS]
        self._log = parts.log
        self._read_by_all = parts[READ_BY_ALL]
        self._announce = parts.announce
        self._is_raising = False

    def begin_term(self) -> None:
        """Raise the format if it is due. Commands of an earlier term are applied or lost."""
        self._is_raising = False
        self.look()

    def look(self) -> None:
        """Raise the format if all members read the newest one. Called on the leader."""
        if self._is_raising or self._formats.format_version >= FORMAT_VERSION:
            return
        known = self._read_by_all()
        if known is None or known < FORMAT_VERSION:
            return
        self._is_raising = True
        submit_commands(self._log, [RaiseFormat(FORMAT_VERSION)], self._raised)

    def _raised(self, refusal: RequestRefused | None) -> None:
        self._is_raising = False  # if it failed, the next look tries again
        if refusal is None:
            self._announce(None)
