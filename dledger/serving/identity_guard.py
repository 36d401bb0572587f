"""Keeps apart members of different groups with the same name."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dledger.config import NodeConfig
from dledger.core.orphans import Orphans, orphans_text
from dledger.errors import DiskFailed
from dledger.network.channel import Identity
from dledger.serving.lasting_refusals import LastingRefusals
from dledger.snapshots.restoring import Opened
from dledger.store.birth_record import shown_names
from dledger.store.disk import Disk, failing
from dledger.store.folder import node_folder
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.wire.group_identity import (
    ANOTHER_GROUP,
    SECOND_PROCESS,
    GroupIdentity,
    Superseded,
    superseded_reason,
    superseding_generation,
)

logger = logging.getLogger(__name__)

# Refusals with a line in the log. A group has 18 members at most; further callers are refused
# without a line.
MAX_TOLD = 64


class IdentityGuard:
    """Compares the identity of this member's group with that of its callers.

    A caller with other first voters, another birth or another generation is refused. A member with
    an empty log takes over the newest generation that it hears of. A member with entries of an
    older generation stops: its group goes on without it.

    Args:
        config: of the member.
        opened: its folder.
        adopted: called when the member has taken over another generation; it reopens all channels.
        grown: called when a caller is a member, here or in another group of this name, that is not
            one of the first voters here.
        fail: ends the member.
        process: the number that this process drew.

    Attributes:
        refused_as_second: the peers that refuse this process, because another one has its name.
    """

    def __init__(
        self,
        config: NodeConfig,
        opened: Opened,
        adopted: Callable[[], None],
        grown: Callable[[], None],
        fail: Callable[[Exception], None],
        process: int = 0,
    ) -> None:
        self._group = config.group
        self._node_id = config.node_id
        self._address = config.address
        disk: Disk = opened.folder.disk
        self._folder = node_folder(str(config.data_dir), config.node_id)
        with failing("open", self._folder):
            self._file = GenerationFile(disk, self._folder)
        self._first_voters = opened.birth.first_voters
        self._voters_sum = opened.birth.voters_sum
        self._birth = opened.birth.birth.hex()
        self._machine = opened.machine
        self._store = opened.store
        self._process = process
        self._orphans = opened.store.orphans
        self.refused_as_second = LastingRefusals()
        self._adopted = adopted
        self._grown = grown
        self._fail = fail
        self._told: set[tuple[str, str]] = set()  # the logged peers, each with what was logged

    @property
    def generation(self) -> Generation:
        return self._file.generation

    @property
    def birth(self) -> str:
        """The birth of its group, as 32 hexadecimal digits; empty while it is not known."""
        return self._birth

    @property
    def identity(self) -> Identity:
        return Identity(self._group, self._node_id, self._address, self._of_group)

    @property
    def _of_group(self) -> GroupIdentity:
        own = (self.generation, self._voters_sum, self._birth, self._machine)
        return GroupIdentity(*own, self._process, self._orphans)

    def born(self, birth: bytes) -> None:
        """Note the birth of the group, which is recorded in the folder already."""
        self._birth = birth.hex()

    def machine_stops(self, stopped: bool) -> None:
        """Note whether the state machine has stopped before an entry that it does not read."""
        self._machine = self._machine._replace(is_stopped=stopped)

    def holds_orphans(self, orphans: Orphans | None) -> None:
        """Note the committed entries that this member holds and its group lost."""
        self._orphans = orphans

    def refusal(self, sender: str, identity: GroupIdentity) -> str | None:
        """Return why a channel from `sender` of the group `identity` is refused, or None."""
        own = self._of_group
        if (problem := self._other_machine(sender, identity.machine.name)) is not None:
            self._tell(sender, "refused", f"refused peer {sender}: {problem}", "another_machine")
            return ANOTHER_GROUP + problem
        if (problem := self._difference(sender, own, identity)) is not None:
            self._report_growth()
            self._tell(sender, "refused", f"refused peer {sender}: {problem}", "another_group")
            return ANOTHER_GROUP + problem
        first = self._first_voters
        if identity.birth and first is not None and sender not in first.voters:
            self._report_growth()
        if identity.generation == own.generation:
            if identity.orphans is not None:
                line = orphans_text(sender, identity.orphans)
                self._tell(sender, f"orphans {identity.orphans}", line, "orphans")
            return None
        return self._other_generation(sender, own.generation, identity.generation)

    def _report_growth(self) -> None:
        """Report that the group may have grown, unless this member's log would say so."""
        first = self._first_voters
        if first is not None and first.voters and not self._has_entries:
            self._grown()

    def refused(self, peer: str, reason: str) -> None:
        """Note that `peer` refused this member's channel, and why."""
        newer = superseding_generation(reason)
        if newer is not None and newer.number > self.generation.number:
            self._join_or_stop(newer)
        elif reason.startswith(SECOND_PROCESS):
            line = f"peer {peer} refuses this member: {reason}"
            self.refused_as_second.add(peer, line, "second_process")
        elif reason.startswith(ANOTHER_GROUP):
            line = f"peer {peer} refuses this member: {reason}"
            self._tell(peer, "was refused by", line, "another_group")

    def _other_machine(self, sender: str, theirs: str) -> str | None:
        own = self._machine.name
        if not own or not theirs or own == theirs:
            return None
        return (
            f"the entries of group {self._group} are for the state machine {own!r} at "
            f"{self._node_id}, and {sender} has {theirs!r}: start all members with one program"
        )

    def _difference(self, sender: str, own: GroupIdentity, other: GroupIdentity) -> str | None:
        """Return why the two are not of one group, apart from their generations, or None."""
        if own.voters_sum and other.voters_sum and own.voters_sum != other.voters_sum:
            first = self._first_voters
            names = shown_names(first.voters if first is not None else ())
            return (
                f"group {self._group} began with the voters {names} at {self._node_id}, and with "
                f"others at {sender}: start the one with the wrong first peers again, in an empty "
                "folder and with --join"
            )
        if own.birth and other.birth and own.birth != other.birth:
            return (
                f"group {self._group} of {self._node_id} has birth {own.birth}, and that of "
                f"{sender} {other.birth}: they began separately; empty the folder of the member "
                "that is in the wrong one"
            )
        return None

    def _other_generation(self, sender: str, own: Generation, other: Generation) -> str:
        """Return why a caller of another generation is refused; a later attempt may be admitted."""
        if other.number < own.number:
            line = (
                f"refused peer {sender}: it belongs to generation {other} of group {self._group}, "
                f"this is {own}"
            )
            self._tell(sender, "refused", line, "generation")
            return superseded_reason(self._group, own, sender, other)
        if other.number == own.number and self._has_entries:
            problem = (
                f"group {self._group} was recovered twice: {self._node_id} holds generation {own}, "
                f"and {sender} generation {other}; keep one, and run `dledger rejoin` on the "
                "members of the other"
            )
            self._tell(sender, "refused", f"refused peer {sender}: {problem}", "another_group")
            return ANOTHER_GROUP + problem
        self._join_or_stop(other)
        return f"{self._node_id} belonged to generation {own}, not {other}: ask again"

    @property
    def _has_entries(self) -> bool:
        return self._store.last_index >= 0

    def _join_or_stop(self, newer: Generation) -> None:
        """Take over a newer generation, or stop if this member's log has entries."""
        if self._has_entries:
            self._fail(Superseded(self._group, self._node_id, self.generation, newer))
            return
        try:
            with failing("write", self._folder):
                self._file.set(newer)
        except DiskFailed as error:
            self._fail(error)
            return
        logger.info("%s joins generation %d of group %s", self._node_id, newer.number, self._group)
        self._adopted()

    def _tell(self, peer: str, what: str, line: str, event: str) -> None:
        """Log `line`, once for each peer and `what`."""
        if (peer, what) not in self._told and len(self._told) < MAX_TOLD:
            self._told.add((peer, what))
            logger.warning("%s", line, extra={"event": event, "peer": peer})
