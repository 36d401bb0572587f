"""The log's command that records who asked for a change. It changes no state."""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.log.entry import AUDIT_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from dledger import Entry


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """A request that is carried out next, if it can be.

    Attributes:
        at_ms: when it came, milliseconds since 1970.
        user: the user that signed it.
        peer: where it came from, host and port.
        request: its name.
        about: the fields that say what it is about, "topic=orders"; without bodies and secrets.
    """

    kind: ClassVar[int] = 39
    since: ClassVar[int] = AUDIT_VERSION

    at_ms: int
    user: str
    peer: str
    request: str
    about: str


def _fold(
    _state: BrokerState, _folded: Folded, _command: AuditRequest, _entry: Entry
) -> EntryRefused | None:
    return None


AUDIT_REQUEST: Final = CommandType(AuditRequest, _fold)
