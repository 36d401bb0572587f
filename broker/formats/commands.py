"""The log's command that raises its format.

A member passes over a record that it cannot read, because no broker can have written it. So before
records of a new form stand in the log, this command does, which stops the members that are too old
for them. Everything that one leader writes behind it is in the log only if the command is.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.formats.state import FORMATS
from broker.log.entry import ATTACHED_VERSION, INCARNATIONS_VERSION, RUNS_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.registry import CommandType
from broker.log.state import BrokerState
from dledger import Entry


@dataclass(frozen=True, slots=True)
class RaiseFormat:
    """From here on the log has entries of this format version."""

    kind: ClassVar[int] = 9

    version: int

    def members(self) -> list[object]:
        """As in LogCommand."""
        return []


def _attached() -> RaiseFormat:
    return RaiseFormat(ATTACHED_VERSION)


def _runs() -> RaiseFormat:
    return RaiseFormat(RUNS_VERSION)


def _incarnations() -> RaiseFormat:
    return RaiseFormat(INCARNATIONS_VERSION)


def _raise(
    state: BrokerState, _folded: Folded, command: RaiseFormat, _entry: Entry
) -> EntryRefused | None:
    formats = state[FORMATS]
    formats.format_version = max(formats.format_version, command.version)
    return None


RAISE_FORMAT: Final = CommandType(
    RaiseFormat,
    {ATTACHED_VERSION: _attached, RUNS_VERSION: _runs, INCARNATIONS_VERSION: _incarnations},
    _raise,
)
