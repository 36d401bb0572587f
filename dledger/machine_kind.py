"""The kind of a state machine: what its entries are, and up to which version it reads them."""

from __future__ import annotations

from typing import NamedTuple

# As long as the other names that members send one another.
MAX_MACHINE_NAME_CHARACTERS = 64


class MachineKind(NamedTuple):
    """What a member tells its peers of its state machine.

    Attributes:
        name: of what the entries are; members with different names are of different groups. Empty:
            it has none, and goes together with any other.
        version: the newest version of entries that it reads, from 1 on; 0: it has none.
        is_stopped: it has stopped before an entry that it does not read.
    """

    name: str = ""
    version: int = 0
    is_stopped: bool = False


# Of a machine that tells nothing, and of a member that does not know of kinds.
UNKNOWN_MACHINE = MachineKind()


def machine_kind(machine: object) -> MachineKind:
    """The kind that a state machine declares; see StateMachine."""
    name = str(getattr(machine, "machine_name", ""))
    return MachineKind(name, int(getattr(machine, "machine_version", 0)))
