"""Every error of the library, in one tree that says whether the outcome is certain.

* `Rejected`: the operation never happened. Trying again is always safe.
* `Discarded`: the entry was in a log once and is now certainly lost. Trying again is safe.
* `OutcomeUnknown`: the entry may or may not be committed later. Trying again may do it twice.
* `Fatal`: this node stops; the data on disk is left as it is.

Fields carry the facts; the text is for people, and no program has to parse it.
"""

from __future__ import annotations

from typing import ClassVar

from dledger.declared_error import DeclaredError
from dledger.system_refusals import Kind, refusal_of, told


class DLedgerError(DeclaredError):
    """Root of the tree."""

    retry_safe: ClassVar[bool] = False
    # Whether a retry fails in the same way until the call or a setting is changed.
    retry_useless: ClassVar[bool] = False


class NotInTrio(DLedgerError):
    """A call that needs trio was made outside a trio loop. `call` is its name."""

    call: str
    instead: str
    _template = "{call} runs in a trio loop, and none runs here: {instead}"


# --- the operation never happened -------------------------------------------------------------


class Rejected(DLedgerError):
    """The node refused the operation before it entered the log."""

    retry_safe = True


class NotLeader(Rejected):
    """Only the leader takes appends and linearizable reads.

    `leader` is the node id to ask instead, or None while none is known; `term` is our term.
    """

    leader: str | None
    term: int

    def _text(self) -> str:
        hint = (
            f"ask {self.leader}" if self.leader else "no leader is known yet: wait for an election"
        )
        return f"not the leader of term {self.term}; {hint}"


class LeadershipMoving(Rejected):
    """The leader hands over to `target`, and refuses appends until that has succeeded or failed."""

    target: str
    term: int
    _template = "leadership of term {term} is moving to {target}; try again in a moment"


class TransferFailed(Rejected):
    """Leadership was not handed to `target` (None: to any other voter)."""

    target: str | None
    reason: str

    def _text(self) -> str:
        return (
            f"leadership was not handed to {self.target or 'another voter'}: {self.reason}; "
            "look at the status of the group, then try again"
        )


class LeaderKept(Rejected):
    """This member may not forget its leader: the leader's lease relies on that."""

    leader: str
    _template = (
        "members with lease reads (max_clock_drift) do not forget their leader {leader}: wait one "
        "election timeout instead"
    )


class LogFull(Rejected):
    """Too many appends wait to be committed: slow down and try again."""

    pending_entries: int
    pending_bytes: int
    _template = (
        "{pending_entries} entries ({pending_bytes} bytes) wait to be committed; slow down and try "
        "again"
    )


class DiskFull(Rejected):
    """The disk of the leader is full, or nearly: nothing was appended.

    The leader takes appends again once there is room. `problem` says what is refused and what to
    do.
    """

    problem: str
    _template = "nothing is appended while the leader's disk is full: {problem}"


class EntryTooLarge(Rejected):
    """The body exceeds the size of an entry. A retry with the same body is useless."""

    retry_useless = True

    body_bytes: int
    limit_bytes: int
    _template = "a body of {body_bytes} bytes; the limit is {limit_bytes}: split it"


class ClientAppendsOff(Rejected):
    """The group takes entries from its own members alone, not from clients of the log's port.

    A retry is useless. `group` is its name, and `machine` that of its state machine.
    """

    retry_useless = True

    group: str
    machine: str

    def _text(self) -> str:
        kind = f", which are of kind {self.machine!r}" if self.machine else ""
        return (
            f"group {self.group} takes entries from its members alone{kind}: use their own clients"
        )


class NotPermitted(Rejected):
    """The user of this connection lacks the right that a request needs. Nothing was done.

    `user` is who asked, `operation` the request, and `lacks` the right, or several of which one is
    enough. A retry is useless until the right is given.
    """

    retry_useless = True

    user: str
    operation: str
    lacks: str
    _template = (
        "user {user} may not ask for {operation}: it lacks the right {lacks}; whoever runs the "
        "group gives it, see docs/security.md"
    )


class ProofNeeded(Rejected):
    """What this connection has proven counts no more at `node_id`. Nothing was done.

    The user was removed or got another secret, or the member asks for users since. The next
    connection proves it anew, or is refused: programs of `dledger` make it by themselves.
    """

    node_id: str
    _template = (
        "{node_id} does not take this connection's user any more: connect again, with "
        "credentials that count"
    )


class MachineStopped(Rejected):
    """The state machine of this member does not read the entry at `index`, and has stopped there.

    Nothing was appended. Another member leads soon if its machine reads the entry.
    """

    index: int
    problem: str
    _template = (
        "the state machine here has stopped before entry {index}: {problem}; ask another member, "
        "and install a program on this one that reads the entry"
    )


class BodyInvalid(Rejected, TypeError):
    """A body is not bytes. A retry with the same body is useless."""

    retry_useless = True

    problem: str


class OtherLoop(Rejected):
    """The object was opened in another trio loop, and only a call there could be answered.

    `what` names the object.
    """

    retry_useless = True

    what: str
    _template = (
        "{what} runs in the loop of another thread, or of the process that was forked: call it "
        "there (trio.from_thread.run with its trio token), or open it by dledger.blocking"
    )


class NodeClosing(Rejected):
    """The node is shutting down and accepts no more calls."""

    _template = "the node is closing; use another node"


class LogClosed(NodeClosing):
    """The block of a log over the network has ended. `group` is its group."""

    group: str
    _template = "the log of group {group} was closed: its block has ended; connect again"


class ReadUnavailable(Rejected):
    """A member cannot serve a read now; `reason` says why. It changed nothing: retry is safe."""

    reason: str
    _template = "the read cannot be served: {reason}; try again"


class OutsideLog(Rejected):
    """A read asked for an entry or a byte that the log does not hold (any more, or yet).

    `what` is "entry" or "byte"; the log holds `first`..`last` of them (`last` < `first`: none).
    """

    what: str
    asked: int
    first: int
    last: int
    _template = (
        "{what} {asked} is not in the log, which holds {first}..{last}: ask again inside that range"
    )


class SnapshotUnavailable(Rejected):
    """No snapshot was written: the state machine has none, or the disk failed.

    The node goes on, and the log keeps the entries that the snapshot would have replaced.
    """

    reason: str
    _template = "no snapshot was written: {reason}"


# --- the entry is certainly lost --------------------------------------------------------------


class Discarded(DLedgerError):
    """Another leader's entry was committed at this index: ours is certainly lost."""

    retry_safe = True

    index: int
    term: int
    _template = "entry {index} of term {term} was replaced by a newer leader's: append it again"


# --- the outcome is unknown --------------------------------------------------------------------


class OutcomeUnknown(DLedgerError):
    """The entry is in this node's log, but this node cannot know whether it will be committed."""


class LeadershipLost(OutcomeUnknown):
    """The node stopped being leader before the entry was committed."""

    index: int
    term: int
    leader: str | None
    _template = (
        "leadership of term {term} was lost before entry {index} was committed; read the log to "
        "learn what became of it"
    )


class AppendCutShort(OutcomeUnknown):
    """The leader took a part of an append that is larger than a slice, and refused the rest.

    The first entries are in the log, from `index` of `term` on, and may be committed; the last ones
    are not. `reason` is why a later part was refused, such as a full disk.
    """

    index: int
    term: int
    reason: str
    _template = (
        "a part of the append is in the log, from entry {index} of term {term} on, and the rest "
        "was refused: {reason}; read the log to learn which bodies it holds"
    )


class NodeClosed(OutcomeUnknown):
    """The node stopped before the entry was committed."""

    index: int
    _template = "the node stopped before entry {index} was known to be committed"


# --- the state machine stops, and the node goes on ----------------------------------------------


class MachineTooOld(DLedgerError):
    """A state machine raises this in `apply` for an entry that a later version of it has to read.

    Guessing at the entry, or skipping it, would make the members differ. The member applies nothing
    from there on: it serves no more, and leads only until a member whose machine reads the entry
    can take over. It goes on to vote and to store entries. Nothing of the run of entries counts as
    applied, so the machine may raise at any of them.

    `index` is that of the entry; `problem` says what it is, in a sentence without a full stop.
    """

    index: int
    problem: str
    _template = (
        "the state machine does not read entry {index}: {problem}; start this member again with a "
        "program that reads it"
    )


# --- this node stops --------------------------------------------------------------------------


class PeerFault(DLedgerError):
    """A peer sent a message that no correct member sends; it was refused and changed nothing.

    The node goes on. The peer has lost data, belongs to another group of the same name, or runs
    other software.
    """

    advice = "compare the members with `dledger verify`"

    peer: str
    problem: str

    def _text(self) -> str:
        return f"refused a message of {self.peer}: {self.problem}; {self.advice}"


class Fatal(DLedgerError):
    """The node cannot go on. The entries that it acknowledged are safe on the other nodes."""


class ConfigInvalid(Fatal):
    """A setting is missing or contradicts another one."""

    setting: str
    problem: str
    _template = "{setting}: {problem}"


class AddressInUse(Fatal):
    """Another process listens on the address this node was given."""

    address: str
    _template = "{address} is in use: stop the process that listens there, or set another port"


class DataFolderMismatch(Fatal):
    """The data folder belongs to another node or another group."""

    path: str
    found: str
    expected: str
    _template = (
        "{path} holds the data of {found}, not of {expected}: point the node at its own folder, or "
        "give it an empty one"
    )


class FirstVotersDiffer(Fatal):
    """The member is started with another list of voters than its group began with.

    `began_with` is empty for a member that joined its group. Two members with different lists
    would elect two leaders.
    """

    path: str
    group: str
    began_with: tuple[str, ...]
    started_with: tuple[str, ...]

    def _text(self) -> str:
        began = f"began with the voters {', '.join(self.began_with)}"
        start = "start it with these, and change members by `dledger members --add` and `--remove`"
        if not self.began_with:
            began = "was joined by this member"
            start = (
                "start it with --join (joining=True); `dledger members` adds and removes members"
            )
        return (
            f"group {self.group} {began}, says {self.path}, and peers names "
            f"{', '.join(self.started_with)}: {start}"
        )


class BirthUnreadable(Fatal):
    """The record of how the group began cannot be read."""

    path: str
    _template = (
        "{path} does not say how the group began: copy this file from the folder of another member "
        "that the group began with, or have the member begin anew in an empty folder"
    )


class DataFolderLocked(Fatal):
    """Another process has the data folder open, or another node of this one (`here`)."""

    path: str
    here: bool = False

    def _text(self) -> str:
        where = "another process: stop that one first"
        return f"{self.path} is open in " + (
            "this process already: close the node that uses it first" if self.here else where
        )


class DiskFailed(Fatal):
    """A write or a sync failed. Never retried: after a failed fsync the page cache lies."""

    operation: str
    path: str
    errno: int | None
    problem: str
    cure: str
    _template = "{operation} {path}: {problem}; {cure}"

    def __init__(self, operation: str, path: str, cause: OSError) -> None:
        self.operation = operation
        self.path = path
        self.errno = cause.errno
        self.problem = cause.strerror or str(cause)
        found = refusal_of(cause)
        self.cure = (
            "free or replace the disk, then start the node again" if found is None else found.cure
        )
        if found is not None and found.kind is Kind.ROOM:
            self.cure += ", then start the node again"
        self.args = ()  # the cause may not travel


class ResourceRefused(Fatal):
    """The system refused the node a resource that it needs, such as memory or descriptors.

    `kind` says which, `__cause__` is the error.
    """

    kind: Kind | None
    problem: str
    _template = "the node cannot go on: {problem}"

    def __init__(self, cause: BaseException) -> None:
        found = refusal_of(cause)
        self.kind = None if found is None else found.kind
        path = cause.filename if isinstance(cause, OSError) else None
        where = f"{path}: " if isinstance(path, str) else ""
        self.problem = f"{where}{told(cause)}"
        self.args = ()  # the cause may not travel


class LogCorrupt(Fatal):
    """A record inside the log is broken, and cutting there could lose committed entries."""

    path: str
    offset: int
    problem: str
    _template = (
        "{path} at byte {offset}: {problem}; the log was left as it is: stop the node and run "
        "`dledger repair` with the folder of a member that is intact, or `dledger rejoin` to have "
        "it begin anew"
    )


class BeginningDropped(DLedgerError):
    """Retention removed a file of a log during a scan from outside.

    `first_index` is the first entry of the log now: read again from that one on.
    """

    retry_safe = True

    folder: str
    first_index: int
    _template = (
        "{folder}: the log's beginning was dropped while it was read; it begins with entry "
        "{first_index} now: try again"
    )


class RepairFailed(DLedgerError):
    """A broken log could not be repaired from another member's; nothing uncertain was written."""

    path: str
    index: int
    problem: str
    _template = "{path}: {problem}: try the folder of another member"


class SnapshotCorrupt(DLedgerError):
    """A snapshot file is broken. An older one is used if there is one."""

    path: str
    offset: int
    problem: str
    _template = "{path} at byte {offset}: {problem}"


class SnapshotLost(Fatal):
    """The log's beginning is dropped, and no snapshot replaces it: the state is incomplete."""

    path: str
    first_index: int
    problems: tuple[str, ...]

    def _text(self) -> str:
        found = "; ".join(self.problems) or "there is none"
        return (
            f"the log begins with entry {self.first_index}, and no snapshot in {self.path} "
            f"replaces the entries before ({found}): put a snapshot there from a copy, or from "
            "another member"
        )


class ConfigurationLost(Fatal):
    """The entry with the group's configuration cannot be read."""

    index: int
    problem: str
    _template = (
        "entry {index}, the group's configuration, cannot be read ({problem}): put a snapshot "
        "there from another member, or start with an empty folder as a new one"
    )


class RestoreFailed(Fatal):
    """The state machine raised while it restored a snapshot whose sums are valid.

    `problem` says what it did, with the error that it raised. `__cause__` is that error.
    """

    path: str
    problem: str = "raised"
    _template = (
        "the state machine {problem} while it restored {path}: fix it, then start the node again"
    )


class HardStateLost(Fatal):
    """The log has no record of term and vote: a start could vote twice in a term."""

    path: str
    _template = (
        "{path} is missing or unreadable beside a log that holds entries: restore this file from a "
        "copy made since the node last voted, or run `dledger rejoin`"
    )


class HardStateOutdated(Fatal):
    """Java DLedger ran in this folder after us: our record lacks the votes that it gave."""

    path: str
    java_path: str
    _template = (
        "{path} is older than the {java_path} of Java DLedger, which ran here since: stop Java, "
        "then remove {path} to take the folder back"
    )


class MachineFailed(Fatal):
    """The state machine raised on committed entries, or did not return their results.

    `problem` says what it did, with the error that it raised. `__cause__` is that error.
    """

    first_index: int
    last_index: int
    problem: str = "raised"
    _template = (
        "the state machine {problem} on entries {first_index}..{last_index}; it must be "
        "deterministic and total: fix it, then start the node again"
    )


class MachineUnusable(Fatal):
    """The object is not a state machine. `machine` is the name of its class."""

    machine: str
    problem: str
    _template = "the state machine {machine} {problem}"


class NodeFailed(Fatal):
    """An unexpected error ended the node: a bug here, or in a callback of `submit`.

    `__cause__` is that error, with its traceback.
    """

    problem: str
    _template = (
        "an unexpected error stopped the node: {problem}; start it again, and report this with the "
        "traceback"
    )

    def __init__(self, cause: BaseException) -> None:
        self.problem = repr(cause)
        self.args = ()  # the cause may not travel


class DiskUnresponsive(Fatal):
    """The node was closed while its disk did not end a sync; its folder is still open.

    Acknowledged entries are on a quorum's disks. The folder is closed once the disk answers, or
    with the process.
    """

    path: str
    waited_s: float
    _template = (
        "{path} was not closed: its disk has not answered for {waited_s:g} s; repair or replace "
        "the disk, then start the process again"
    )


class InvariantBroken(Fatal):
    """A promise of the protocol does not hold: a bug here, or a disk that lost synced data."""

    problem: str


# --- what arrives from outside ----------------------------------------------------------------


class MessageMalformed(DLedgerError):
    """A peer or client sent bytes that are not a message of this protocol."""

    problem: str
    _template = "malformed message: {problem}"


class BatchInvalid(MessageMalformed):
    """A peer sent a run of entries that is broken or does not follow our log."""


class ChainBroken(BatchInvalid):
    """The chain CRC of an entry does not follow the entry before."""

    def __init__(self, index: int) -> None:
        self.index = index
        problem = "the chain CRC does not follow the entry before"
        super().__init__(f"entry {index} of a batch: {problem}")


class LogsDiverge(BatchInvalid):
    """A peer's entry and ours have the same index and term, but differ."""

    index: int


class ConfigurationMalformed(MessageMalformed):
    """The bytes are no configuration, or one that this version cannot read."""
