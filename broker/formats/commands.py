"""The log's command that raises its format.

A member skips a record that it cannot read, because no broker can have written it. So before
records of a new form, the log has this command, which stops members that are too old for them. All
later entries of the same leader are in the log only if the command is.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.formats.state import FORMATS
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from dledger import Entry


@dataclass(frozen=True, slots=True)
class RaiseFormat:
    """Entries from here on may be of this format version."""

    kind: ClassVar[int] = 9
    since: ClassVar[int] = ATTACHED_VERSION

    version: int


def _raise(
    state: BrokerState, _folded: Folded, command: RaiseFormat, _entry: Entry
) -> EntryRefused | None:
    formats = state[FORMATS]
    formats.format_version = max(formats.format_version, command.version)
    return None


RAISE_FORMAT: Final = CommandType(RaiseFormat, _raise)
