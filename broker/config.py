"""The settings of a broker, checked."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from broker.errors import SettingInvalid
from broker.limits import BrokerLimits
from broker.retention.policy import RetentionPolicy
from dledger import SnapshotPolicy, StoreConfig
from remoting.net.address import Address, parse_address
from remoting.net.errors import AddressMalformed

DEFAULT_CLUSTER = "DefaultCluster"

# About three seconds of a start. What of the log is dropped is decided by retention alone.
DEFAULT_SNAPSHOTS = SnapshotPolicy(
    every_entries=500_000, every_bytes=512 * 1024 * 1024, trailing_entries=0
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerConfig:
    """One member of a group of brokers. Raises SettingInvalid when it cannot be.

    Attributes:
        group: the dledger group, which is the broker name that clients see.
        node_id: this member.
        peers: every member, this one included: id -> host:port of its log traffic.
        listen: where clients connect.
        advertise: how clients reach that, an IPv4 address; `listen` when None.
        listen_peers: where the other members connect; this member's address in `peers` when None.
        nameservers: "host:port" of each name server.
        directory: where log and consume queues lie.
        cluster: the cluster's name.
        auto_create_topics: whether a first message makes its topic.
        limits: what is held at most.
        retention: how long messages are kept.
        snapshots: when the state is saved; a start applies what lies behind.
        store: sizes of the log's files; the same for ever, and on all members.
    """

    group: str
    node_id: str
    peers: Mapping[str, str]
    listen: Address
    advertise: Address | None = None
    listen_peers: Address | None = None
    nameservers: tuple[str, ...] = ()
    directory: Path
    cluster: str = DEFAULT_CLUSTER
    auto_create_topics: bool = True
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    snapshots: SnapshotPolicy = DEFAULT_SNAPSHOTS
    store: StoreConfig = field(default_factory=StoreConfig)

    def __post_init__(self) -> None:
        """Judge the settings."""
        setting = "--listen" if self.advertise is None else "--advertise"
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
        for nameserver in self.nameservers:
            read_address("--nameservers", nameserver)
        if not self.cluster or not self.cluster.isprintable() or " " in self.cluster:
            raise SettingInvalid("--cluster", f"{self.cluster!r}: give a name without spaces")

    @property
    def address(self) -> Address:
        """How clients reach this broker."""
        return self.listen if self.advertise is None else self.advertise


def read_address(setting: str, text: str) -> Address:
    """Read "host:port". Raises SettingInvalid that names the setting."""
    try:
        return parse_address(text)
    except AddressMalformed as error:
        raise SettingInvalid(setting, str(error)) from None


def read_nameservers(text: str) -> tuple[str, ...]:
    """Read "host:port;host:port", as RocketMQ writes a list of name servers."""
    return tuple(part.strip() for part in text.split(";") if part.strip())
