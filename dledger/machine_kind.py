"""The kind of a state machine: the name of its entries, and the newest version that it reads."""

from __future__ import annotations

from typing import NamedTuple

# As long as the other names that members send one another.
MAX_MACHINE_NAME_CHARACTERS = 64


class MachineKind(NamedTuple):
    """What a member tells its peers of its state machine.

    Attributes:
        name: names the kind of entries; members with different names are of different groups. The
            empty name goes together with any other.
        version: the newest version of entries that it reads, from 1 on; 0 if it has no versions.
        is_stopped: whether it has stopped before an entry that it does not read.
    """

    name: str = ""
    version: int = 0
    is_stopped: bool = False


# For a machine that declares nothing, and for a member of a version without kinds.
UNKNOWN_MACHINE = MachineKind()


def machine_kind(machine: object) -> MachineKind:
    name = str(getattr(machine, "machine_name", ""))
    return MachineKind(name, int(getattr(machine, "machine_version", 0)))
