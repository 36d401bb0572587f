"""The configuration of a broker, made of the options of its command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from broker.config import BrokerConfig, read_address, read_nameservers
from broker.errors import SettingInvalid
from broker.retention.policy import RetentionPolicy, read_hours
from broker.transactions.policy import CheckPolicy
from dledger import ConfigInvalid, SnapshotPolicy, parse_peers
from dledger.command_line.node_options import NODE_OPTIONS, option_of
from dledger.command_line.option_sources import options_of, place
from dledger.command_line.server_tls_options import server_tls_values
from remoting.net.access_file import read_access_file
from remoting.net.address import Address
from remoting.net.networks import Network, parse_networks
from remoting.net.tls_config import read_server_tls
from remoting.wire.users import AccessFile

# Whether the port of the log asks for users; the first is the default.
LOG_USERS: Final = ("enforcing", "permissive")

# Settings of the log's member, and what they are called here.
_OF_NODE: Final = {"preferred_leader": "prefer", "listen": "listen-peers"}

# Options of snapshots.
SNAPSHOTS: Final = tuple(one for one in NODE_OPTIONS if one.part is SnapshotPolicy)


def checked_config(ctx: click.Context) -> BrokerConfig:
    """Make a configuration of the options. Raises SettingInvalid, which names their places."""
    try:
        tls = read_server_tls(*server_tls_values(ctx))
        config = read_config({**ctx.params, "tls": tls})
        _ = config.node
    except (ConfigInvalid, SettingInvalid) as error:
        key = error.setting.removeprefix("--")
        if isinstance(error, ConfigInvalid):
            key = _OF_NODE.get(key) or option_of(key).replace("_", "-")
        where = place(ctx, key) if key in options_of(ctx.command) else error.setting
        raise SettingInvalid(where, error.problem) from error
    return config


def read_config(options: Mapping[str, Any]) -> BrokerConfig:
    """Make a configuration of the values of options. Raises SettingInvalid, ConfigInvalid."""
    return BrokerConfig(
        group=options["group"],
        node_id=options["node"],
        peers=parse_peers("--peers", options["peers"]),
        joining=options["join"],
        new=options["new"],
        listen=read_address("--listen", options["listen"]),
        listen_group=_address_or_none("--listen-group", options["listen_group"]),
        shares_port=options["share_port"],
        relays_from=_networks("--relays-from", options["relays_from"]),
        advertise=_address_or_none("--advertise", options["advertise"]),
        listen_peers=_address_or_none("--listen-peers", options["listen_peers"]),
        prefer=options["prefer"],
        nameservers=read_nameservers(options["nameservers"]),
        directory=options["directory"],
        cluster=options["cluster"],
        auto_create_topics=options["auto_create_topics"],
        max_connections=options["max_connections"],
        metrics=_address_or_none("--metrics", options["metrics"]),
        access=_access_or_none(options["access_file"]),
        log_asks=options["log_users"] == LOG_USERS[0],
        tls=options["tls"],
        peer_authorities=options["tls_peers_ca"],
        election_timeout_ms=options["election_timeout_ms"],
        snapshots=SnapshotPolicy(**{one.field: options[one.name] for one in SNAPSHOTS}),
        pass_over=frozenset(options["pass_over"]),
        retention=RetentionPolicy(
            keep_hours=options["keep_hours"],
            at_hours=read_hours(options["delete_at_hours"]),
            clean_percent=options["disk_clean_percent"],
            force_percent=options["disk_force_percent"],
            refuse_percent=options["disk_refuse_percent"],
        ),
        checks=CheckPolicy(
            after_s=options["transaction_check_after_seconds"],
            every_s=options["transaction_check_every_seconds"],
            max_checks=options["transaction_max_checks"],
            give_up_hours=options["transaction_give_up_hours"],
        ),
    )


def _networks(setting: str, text: str) -> tuple[Network, ...]:
    try:
        return parse_networks(text)
    except ValueError as error:
        raise SettingInvalid(setting, str(error)) from None


def _address_or_none(setting: str, text: str | None) -> Address | None:
    return read_address(setting, text) if text else None


def _access_or_none(path: Path | None) -> AccessFile | None:
    return None if path is None else read_access_file(path)
