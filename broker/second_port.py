"""The port where some clients look for a broker, although no broker listens there.

RocketMQ's brokers serve a second port, two below the first (the VIP channel). Its dashboard and
clients before 4.5.1 use it by default. They fail at once if the connection is refused. If another
program accepts it, they hang, or fail with misleading errors.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from broker.config import BrokerConfig
from remoting.net.address import Address, parse_address

SECOND_PORT: Final = -2

_FIRST_PORT: Final = 1024
_LAST_PORT: Final = 65_535


def advice(config: BrokerConfig) -> str | None:
    """Return what to change if another address of the configuration is the second port of a client
    port; None if none is.
    """
    for setting, address in _client_addresses(config):
        port = address.port + SECOND_PORT
        for other, taken in _neighbours(config, address):
            if taken == port:
                return (
                    f"{setting} {address}: clients with a VIP channel, such as RocketMQ's "
                    f"dashboard, connect to port {port}, which is that of {other}, and fail: give "
                    f"{setting} port {_free_port(config, address)}, or {other} another one"
                )
    return None


def _client_addresses(config: BrokerConfig) -> Iterator[tuple[str, Address]]:
    for setting, address in (
        ("--advertise", config.advertise),
        ("--listen-group", config.listen_group),
        ("--listen", config.listen),
    ):
        if address is not None:
            yield setting, address


def _neighbours(config: BrokerConfig, address: Address) -> Iterator[tuple[str, int]]:
    """Yield the settings and ports of all else that listens on the machine of `address`, as far as
    this member knows.
    """
    for setting, own in (
        *_client_addresses(config),
        ("--listen-peers", config.listen_peers),
        ("--metrics", config.metrics),
    ):
        if own is not None and own is not address:
            yield setting, own.port
    own_hosts = {address.host, config.listen.host}
    if (own_peer := config.peers.get(config.node_id)) is not None:
        own_hosts.add(parse_address(own_peer).host)
    for node_id, peer in config.peers.items():
        parsed = parse_address(peer)
        if parsed.host in own_hosts:
            yield f"{node_id} in --peers", parsed.port
    for nameserver in config.nameservers:
        parsed = parse_address(nameserver)
        if parsed.host in own_hosts:
            yield f"{nameserver} in --nameservers", parsed.port


def _free_port(config: BrokerConfig, address: Address) -> int:
    """Return the nearest port above that is unused by the configuration, and whose second port is
    too.
    """
    taken = {port for _setting, port in _neighbours(config, address)}
    taken |= {port - SECOND_PORT for port in taken} | {port + SECOND_PORT for port in taken}
    above, below = range(address.port + 1, _LAST_PORT + 1), range(_FIRST_PORT, address.port)
    return next(port for port in chain(above, below) if port not in taken)
