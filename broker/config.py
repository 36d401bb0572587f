"""The settings of a broker, checked."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.errors import SettingInvalid
from broker.limits import MAX_DELAY_S, MAX_MESSAGE_BYTES, BrokerLimits
from broker.retention.policy import RetentionPolicy
from broker.transactions.policy import CheckPolicy
from dledger import LARGEST_BODY_BYTES, NodeConfig, SnapshotPolicy, StoreConfig, TlsConfig
from remoting.bodies.topic_config import PERMISSION_READ_WRITE
from remoting.net.address import Address, parse_address
from remoting.net.errors import AddressMalformed
from remoting.net.networks import Network, is_in
from remoting.net.tls_config import ServerTlsConfig, Tls, TlsMode
from remoting.wire.users import AccessFile

DEFAULT_CLUSTER = "DefaultCluster"

# A start applies these entries in about three seconds. Retention alone decides what the log drops.
DEFAULT_SNAPSHOTS = SnapshotPolicy(
    every_entries=500_000, every_bytes=512 * 1024 * 1024, trailing_entries=0
)

# Room for a snapshot of a million offsets and waiting messages, their consume queues, and the
# entries by which retention makes room.
RESERVE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerConfig:
    """The settings of one member of a group of brokers. Raises SettingInvalid.

    Attributes:
        group: name of the dledger group, which clients see as the broker name.
        peers: id -> host:port of the log's traffic, for every member, this one included.
        joining: this member joins a running group, which tells it the other members: `peers` needs
            only its own address.
        new: the group has never begun; see `NodeConfig`.
        pass_over: entries that are never applied; see `NodeConfig`.
        listen: where clients of this member connect, and members that relay clients to it.
        listen_group: where clients connect that want the leader, whichever member that is; None
            for no such port.
        shares_port: members on the same machine share the port of `listen_group`.
        relays_from: the networks whose PROXY headers `listen` believes: those of members that relay
            clients, and of other relays. When empty, the addresses in `peers` with `listen_group`,
            and none without.
        advertise: how clients reach the group, an IPv4 address; `listen_group` or `listen` when
            None.
        listen_peers: where the other members connect; this member's address in `peers` when None.
        prefer: the member that should lead whenever it is healthy, the same on all members.
        nameservers: "host:port" of each name server.
        directory: the folder of the log and the consume queues.
        auto_create_topics: whether a first message creates its topic.
        auto_create_groups: whether a consumer's first heartbeat creates its group.
        permission: what clients may do whatever a topic allows; bits: 4 read, 2 write.
        takes_transactions: whether transactional messages are accepted.
        notifies_consumers: whether group members are told when others come and go.
        max_message_bytes: the longest body of a send.
        max_delay_s: the longest delay that a message may ask for; delay levels are exempt.
        max_connections: of clients; None for as many as the process may open files.
        access: switches access control on; None lets everybody do everything.
        log_asks: whether the port of the log asks for users too, with access control.
        metrics: where GET /metrics is answered for Prometheus.
        tls: the certificate of this member, which names its node id, and what clients may speak.
        peer_authorities: which sign the certificates of members; those of clients if None.
        election_timeout_ms: see `NodeConfig`.
        snapshots: when the state is written to disk, and how much of the log stays beside it.
        store: sizes of the log's files; never changed, and equal on all members.
    """

    group: str
    node_id: str
    peers: Mapping[str, str]
    joining: bool = False
    new: bool = False
    listen: Address
    listen_group: Address | None = None
    shares_port: bool = False
    relays_from: tuple[Network, ...] = ()
    advertise: Address | None = None
    listen_peers: Address | None = None
    prefer: str | None = None
    nameservers: tuple[str, ...] = ()
    directory: Path
    cluster: str = DEFAULT_CLUSTER
    auto_create_topics: bool = True
    auto_create_groups: bool = True
    permission: int = PERMISSION_READ_WRITE
    takes_transactions: bool = True
    notifies_consumers: bool = True
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_delay_s: int = MAX_DELAY_S
    max_connections: int | None = None
    metrics: Address | None = None
    access: AccessFile | None = None
    log_asks: bool = True
    tls: ServerTlsConfig | None = None
    peer_authorities: Path | None = None
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    checks: CheckPolicy = field(default_factory=CheckPolicy)
    election_timeout_ms: int = 500
    snapshots: SnapshotPolicy = DEFAULT_SNAPSHOTS
    pass_over: frozenset[int] = frozenset()
    store: StoreConfig = field(
        default_factory=lambda: StoreConfig(
            max_body_bytes=LARGEST_BODY_BYTES, reserve_bytes=RESERVE_BYTES
        )
    )

    def __post_init__(self) -> None:
        setting = "--listen"
        if self.address is not self.listen:
            setting = "--listen-group" if self.advertise is None else "--advertise"
        try:
            address = ipaddress.IPv4Address(self.address.host)
        except ValueError:
            raise SettingInvalid(
                setting,
                f"{self.address.host} is no IPv4 address, and C++ and JavaScript clients read no "
                "other: give one, as 127.0.0.1:10911",
            ) from None
        if address.is_unspecified:
            raise SettingInvalid(
                "--advertise", f"clients cannot connect to {address}: say which address they use"
            )
        if self.listen_group is not None and not self.relays_from:
            self._check_peer_networks()
        for nameserver in self.nameservers:
            read_address("--nameservers", nameserver)
        if self.max_connections is not None and self.max_connections < 1:
            raise SettingInvalid("--max-connections", f"{self.max_connections}: give 1 or more")
        if self.tls is not None and self.tls.authorities is None:
            raise SettingInvalid(
                "--tls-ca", "is missing: members check one another, and name servers, by it"
            )
        if not self.cluster or not self.cluster.isprintable() or " " in self.cluster:
            raise SettingInvalid("--cluster", f"{self.cluster!r}: give a name without spaces")

    def _check_peer_networks(self) -> None:
        try:
            self._peer_networks()
        except ValueError:
            raise SettingInvalid(
                "--relays-from",
                "--peers has names: say from which networks members pass clients on, as 10.0.0.0/8",
            ) from None

    @property
    def node(self) -> NodeConfig:
        """The settings of the member of the log's group. Raises ConfigInvalid."""
        return NodeConfig(
            group=self.group,
            node_id=self.node_id,
            peers=self.peers,
            joining=self.joining,
            new=self.new,
            listen=None if self.listen_peers is None else str(self.listen_peers),
            data_dir=self.directory,
            preferred_leader=self.prefer,
            election_timeout_ms=self.election_timeout_ms,
            store=self.store,
            snapshots=self.snapshots,
            client_appends=False,
            small_appends_when_full=True,  # `FullDisk` refuses messages earlier
            pass_over=self.pass_over,
            tls=self.log_tls,
        )

    @property
    def address(self) -> Address:
        return self.advertise or self.listen_group or self.listen

    @property
    def address_for_members(self) -> Address:
        if not ipaddress.ip_address(self.listen.host).is_unspecified:
            return self.listen
        return Address(parse_address(self.peers[self.node_id]).host, self.listen.port)

    @property
    def log_tls(self) -> TlsConfig | None:
        """The certificates of members, for the port of the log and for clients passed on."""
        if self.tls is None or self.tls.authorities is None:
            return None
        return TlsConfig(
            certificate=self.tls.certificate,
            key=self.tls.key,
            authorities=self.peer_authorities or self.tls.authorities,
        )

    @property
    def client_tls(self) -> Tls | None:
        """What this member speaks to name servers; None for plain connections."""
        if self.tls is None or self.tls.mode is TlsMode.DISABLED:
            return None
        return Tls(
            authorities=self.tls.authorities, certificate=self.tls.certificate, key=self.tls.key
        )

    def trusts_proxy(self, host: str) -> bool:
        """Return whether a peer at this IP address may connect on behalf of clients: a member or a
        relay.

        RocketMQ 5 trusts everybody.
        """
        if self.listen_group is None and not self.relays_from:
            return False
        return is_in(host, self.relays_from or self._peer_networks())

    def _peer_networks(self) -> tuple[Network, ...]:
        hosts = (parse_address(peer).host for peer in self.peers.values())
        return tuple(ipaddress.ip_network(host) for host in hosts)


def read_address(setting: str, text: str) -> Address:
    """Read "host:port". Raises SettingInvalid that names the setting."""
    try:
        return parse_address(text)
    except AddressMalformed as error:
        raise SettingInvalid(setting, str(error)) from None


def read_nameservers(text: str) -> tuple[str, ...]:
    """Read "host:port;host:port", as RocketMQ writes a list of name servers."""
    return tuple(part.strip() for part in text.split(";") if part.strip())
