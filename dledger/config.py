"""The settings of a node: its name, the members, its data folder, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import (
    Configuration,
    check_member_id,
    is_address,
    unreachable,
)
from dledger.entry import HEADER_BYTES, MAX_BODY_BYTES
from dledger.errors import ConfigInvalid
from dledger.network.tls_config import TlsConfig
from dledger.number_check import check_numbers
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.noop_body import LONGEST_BYTES
from dledger.store.store_config import MIN_SEGMENT_BYTES, StoreConfig

# Members of one group. More would cost more in acknowledgements than they add in safety.
MAX_MEMBERS = 9

# A group without a leader serves nothing for one to two election timeouts. With more than this its
# clients give up first, and sessions end.
MAX_ELECTION_TIMEOUT_MS = 60_000

# A longer interval is a mistake in the unit: a power cut would lose hours of acknowledged entries.
MAX_FLUSH_INTERVAL_MS = 3_600_000

# One frame carries a push, and holds the largest entry besides its header (`dledger.wire.frame`).
MAX_BATCH_BYTES = HEADER_BYTES + MAX_BODY_BYTES

# Ten years. Something longer is no period for a disk; 0 switches the check off.
MAX_SCRUB_PERIOD_HOURS = 10 * 366 * 24

# Beyond this a lease is too short, compared to the election timeout, to be worth having.
MAX_CLOCK_DRIFT = 0.3

# Enough for the changes of some ten thousand entries: a client that was away for a while continues
# where it was, and no state machine grows much.
WATCH_HISTORY_BYTES = 16 * 1024 * 1024

_HIGHEST_PORT = 65_535


class Address(NamedTuple):
    """A host and a port. As text: host:port, or [host]:port for a numeric IPv6 address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(setting: str, text: str) -> Address:
    """Parse `host:port` or `[host]:port`. Raises ConfigInvalid that names `setting`."""
    if not isinstance(text, str):
        raise ConfigInvalid(setting, f"{text!r:.100} is no text: give 'host:port'")
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigInvalid(
            setting, f"{text!r}: put a numeric IPv6 address in brackets, as in [::1]:20911"
        )
    is_number = port.isdecimal() and len(port) <= len(str(_HIGHEST_PORT))
    if not separator or not host or not is_number or not 0 < int(port) <= _HIGHEST_PORT:
        raise ConfigInvalid(setting, f"{text!r} is not host:port, as in 127.0.0.1:20911")
    return Address(host, int(port))


def parse_reached_address(setting: str, text: str) -> Address:
    """Parse an address at which others reach a member. Raises ConfigInvalid."""
    address = parse_address(setting, text)
    if not is_address(str(address)):
        raise ConfigInvalid(setting, f"{text!r:.300} is not host:port, as in 127.0.0.1:20911")
    if (problem := unreachable(address.host)) is not None:
        raise ConfigInvalid(setting, problem)
    return address


def parse_peers(setting: str, text: str) -> dict[str, str]:
    """Parse `n0=127.0.0.1:20911,n1=...`. Raises ConfigInvalid that names `setting`."""
    peers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        node_id, separator, address = part.partition("=")
        if not separator:
            raise ConfigInvalid(setting, f"{part!r} is not id=host:port")
        if node_id in peers:
            raise ConfigInvalid(setting, f"{node_id} is named twice")
        peers[node_id] = address
    return peers


_MOST = {
    "election_timeout_ms": MAX_ELECTION_TIMEOUT_MS,
    "flush_interval_ms": MAX_FLUSH_INTERVAL_MS,
    "max_batch_bytes": MAX_BATCH_BYTES,
    "scrub_period_hours": MAX_SCRUB_PERIOD_HOURS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeConfig:
    """One member's settings. Every field is checked when the object is made (ConfigInvalid)."""

    group: str
    node_id: str
    # Every member, this one included: id -> host:port, as other members and clients reach it.
    peers: Mapping[str, str]
    data_dir: Path
    # Where this member listens, where that differs from how others reach it: in a container, or
    # behind a router that translates addresses. As host:port; 0.0.0.0 is every IPv4 address here.
    listen: str | None = None
    # A node that joins a running group learns the members from a leader; of `peers` it needs only
    # its own entry. From then on its log holds the members of the group.
    joining: bool = False
    # The group has never begun: its members may begin it once a quorum of `peers` is up. Without
    # this they begin it when all of them are, since a member that does not answer may hold its
    # data. Only for the first start of a group. A folder that holds something ignores it.
    new: bool = False
    store: StoreConfig = field(default_factory=StoreConfig)
    snapshots: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    # Whether clients of this member's port may append, in sessions too. Without this only the
    # members append. Clients still read, and change members: see docs/security.md.
    client_appends: bool = True
    # Whether this member's own appends may use what room a full disk has left, half of the reserve:
    # for an application that looks at `Node.disk_short` and then appends only what is small, or
    # frees the disk.
    small_appends_when_full: bool = False
    # Entries that the state machine is never given, though it might read them. Only for a group
    # that no member's machine can lead past an entry (MachineTooOld). Dangerous: members with
    # different sets come to different states, without a sign. See docs/failures.md.
    pass_over: frozenset[int] = frozenset()
    # Without it every process that reaches the port is trusted. All members have it, or none.
    tls: TlsConfig | None = None
    # A file of users, and of what each may do at this member's port: see docs/security.md. Without
    # it every process that reaches the port (with TLS: that is believed) may do everything.
    users: Path | None = None

    # An election starts one to two of these after the last sign of a leader; a minute at most. Five
    # heartbeats: a lost packet or a slow sync does not cost a leader.
    election_timeout_ms: int = 500
    heartbeat_interval_ms: int = 100

    # Lease reads, off without it: the share by which the monotonic clock of any member may run
    # faster or slower than true time. All members must have the same. Real clocks stay within
    # 0.001; a machine that is suspended with its clock stopped exceeds every bound. With lease
    # reads members wait for the election timeout even if they see the leader's process end.
    max_clock_drift: float | None = None
    # The member that should lead whenever it is healthy. All members should name the same one.
    preferred_leader: str | None = None

    # An entry counts on this member after a sync. With a number it counts once it is written, and
    # is synced within this many milliseconds: entries acknowledged meanwhile may be lost when
    # machines lose power. A killed process loses nothing either way. See docs/library.md.
    flush_interval_ms: int | None = None

    # Appends that may wait for their commit; the same number as in Java DLedger.
    max_pending_entries: int = 10_000
    # The same in bytes: a leader's memory for members that do not answer.
    max_pending_bytes: int = 64 * 1024 * 1024
    # One push to a peer. At 30 MB/s and 1 ms a round trip even a tenth of it would do; larger
    # pushes keep the other messages of the link waiting. 4 MiB at most.
    max_batch_bytes: int = 256 * 1024

    # What a member keeps for watches, of a state machine that tells its changes (`Changes`): those
    # of the newest entries. A watch that asks for older ones begins anew.
    watch_history_bytes: int = WATCH_HISTORY_BYTES

    # The whole log is read and checked once in this time, in the background; 0 switches it off. A
    # week finds a bad sector long before the other members' copies are likely to have one too.
    scrub_period_hours: float = 168.0

    def __post_init__(self) -> None:
        _check_name("group", self.group)
        _check_name("node_id", self.node_id)
        check_path("data_dir", self.data_dir)
        if self.users is not None:
            check_path("users", self.users)
        for name, kind in (("store", StoreConfig), ("snapshots", SnapshotPolicy)):
            if not isinstance(given := getattr(self, name), kind):
                problem = f"{given!r:.100} is no {kind.__name__}: give {kind.__name__}(...)"
                raise ConfigInvalid(name, problem)
        if not isinstance(self.peers, Mapping):
            problem = f"{self.peers!r:.100} is no mapping: give {{'n0': 'host:port', ...}}"
            raise ConfigInvalid("peers", problem)
        if self.node_id not in self.peers:
            raise ConfigInvalid("node_id", f"{self.node_id} is not one of {sorted(self.peers)}")
        if len(self.peers) > MAX_MEMBERS:
            raise ConfigInvalid("peers", f"{len(self.peers)} members; at most {MAX_MEMBERS}")
        addresses = [
            parse_reached_address(f"peers.{peer}", text) for peer, text in self.peers.items()
        ]
        for peer in self.peers:
            _check_name("peers", peer)
        try:
            check_member_id(self.node_id)
        except ConfigurationInvalid as error:
            raise ConfigInvalid("node_id", error.problem) from error
        if len(set(addresses)) != len(addresses):
            raise ConfigInvalid("peers", "two members have the same address")
        if self.listen is not None:
            parse_address("listen", self.listen)
        if self.new and self.joining:
            raise ConfigInvalid("new", "a node that joins a group does not begin it: leave one out")
        _ = self.began_with
        check_numbers(self)
        if self.heartbeat_interval_ms < 1:
            raise ConfigInvalid("heartbeat_interval_ms", "must be at least 1")
        if self.election_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise ConfigInvalid(
                "election_timeout_ms", "must be at least two heartbeats, or leaders are deposed"
            )
        for name, most in _MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ConfigInvalid(name, f"must be at most {most}")
        least = MIN_SEGMENT_BYTES + LONGEST_BYTES
        if self.store.segment_bytes < least:
            problem = f"has no room for the entry that opens a term: give {least} or more"
            raise ConfigInvalid("segment_bytes", problem)
        if any(index < 0 for index in self.pass_over):
            raise ConfigInvalid("pass_over", "holds an index below 0")
        if self.scrub_period_hours < 0:
            raise ConfigInvalid("scrub_period_hours", "must not be negative; 0 switches it off")
        if self.watch_history_bytes < 0:
            raise ConfigInvalid("watch_history_bytes", "must not be negative; 0 keeps no changes")
        if self.flush_interval_ms is not None and self.flush_interval_ms < 1:
            problem = "must be at least 1; leave it out to sync before an entry counts"
            raise ConfigInvalid("flush_interval_ms", problem)
        drift = self.max_clock_drift
        if drift is not None and not 0.0 < drift <= MAX_CLOCK_DRIFT:
            raise ConfigInvalid(
                "max_clock_drift", f"{drift:g} is not a share above 0, {MAX_CLOCK_DRIFT:g} at most"
            )
        if self.preferred_leader not in (None, *self.peers):
            raise ConfigInvalid(
                "preferred_leader", f"{self.preferred_leader} is not one of {sorted(self.peers)}"
            )
        for name in ("max_pending_entries", "max_pending_bytes", "max_batch_bytes"):
            if getattr(self, name) < 1:
                raise ConfigInvalid(name, "must be at least 1")

    def with_changes(self, changes: Mapping[str, Any]) -> NodeConfig:
        """Return a copy with some settings replaced. Raises ConfigInvalid."""
        return replace(self, **changes)

    @property
    def began_with(self) -> Configuration:
        """The configuration that the group begins with: every peer votes.

        It is empty for a node that joins a group.
        """
        if self.joining:
            return Configuration()
        try:
            return Configuration(voters=frozenset(self.peers), addresses=self.peers)
        except ConfigurationInvalid as error:
            raise ConfigInvalid("peers", error.problem) from error

    @property
    def address(self) -> Address:
        """The address at which others reach this member."""
        return parse_address("peers", self.peers[self.node_id])

    @property
    def listen_address(self) -> Address:
        """The address at which this member listens."""
        return self.address if self.listen is None else parse_address("listen", self.listen)


# The settings that a running node can change: see `Node.reconfigure`.
CHANGEABLE = ("preferred_leader", "snapshots", "scrub_period_hours")


def check_changeable(now: NodeConfig, wanted: NodeConfig) -> None:
    """Raise ConfigInvalid if `wanted` differs in a setting that a running node cannot change."""
    for name in (setting.name for setting in fields(NodeConfig)):
        if name not in CHANGEABLE and getattr(now, name) != getattr(wanted, name):
            raise ConfigInvalid(name, "cannot change while the node runs: start it again")


def check_path(setting: str, path: Path) -> None:
    """Raise ConfigInvalid unless `path` is a path that the system can open."""
    if not isinstance(path, Path):
        raise ConfigInvalid(setting, f"{path!r:.100} is no pathlib.Path: give Path(...)")
    if "\0" in str(path):
        raise ConfigInvalid(setting, f"{str(path)!r:.100} has a NUL character, as no path has")


def _check_name(setting: str, name: str) -> None:
    # Names become folder names and keys of one-line settings.
    is_text = isinstance(name, str)
    if not is_text or not 1 <= len(name) <= 64 or not all(c.isalnum() or c in "_-." for c in name):
        raise ConfigInvalid(setting, f"{name!r:.100}: 1 to 64 letters, digits, '_', '-' or '.'")
