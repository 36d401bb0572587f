"""The process of one broker: `python -m jepsen_like.chaos.brokers SETTINGS.json`.

It runs the broker as `python -m broker` does, and besides takes orders and tells its status as
other members of runs do. It ends when its standard input does.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from broker.config import BrokerConfig
from broker.errors import BrokerError
from broker.server import Broker, Surroundings, run_broker
from dledger import DLedgerError, SnapshotPolicy, collect_seldom
from dledger.command_line.log_lines import TEXT, set_up_logging
from dledger.command_line.server_signals import ending_signals
from dledger.system_refusals import single
from dledger_mq.clusters.certificate_folder import AUTHORITY, CertificateFolder
from jepsen_like.chaos.members.control import Control
from jepsen_like.mutants.planting import planted
from remoting.net.access_file import read_access_file
from remoting.net.address import Address, parse_address
from remoting.net.tls_config import ServerTlsConfig, TlsMode
from remoting.wire.errors import RemotingError
from remoting.wire.users import AccessFile

# Small, so that brokers that are killed in a run of a minute go on from snapshots.
SNAPSHOTS = SnapshotPolicy(every_entries=500, trailing_entries=250)

logger = logging.getLogger("jepsen_like.member")


async def serve(settings: dict[str, Any]) -> None:
    """Run the broker until its standard input ends, or it is asked to stop."""
    config = BrokerConfig(
        group=settings["group"],
        node_id=settings["node_id"],
        peers=settings["peers"],
        joining=settings["joining"],
        listen=parse_address(settings["listen"]),
        listen_group=_address_or_none(settings["listen_group"]),
        advertise=_address_or_none(settings["advertise"]),
        relays_from=(_network_of(settings["listen_peers"]),),
        listen_peers=parse_address(settings["listen_peers"]),
        nameservers=(settings["nameserver"],),
        directory=Path(settings["directory"]),
        snapshots=SNAPSHOTS,
        tls=_tls(settings),
        access=_access(settings),
    )
    with trio.open_signal_receiver(signal.SIGHUP) as hangups:
        await _serve(config, hangups)


async def _serve(config: BrokerConfig, hangups: AsyncIterable[int]) -> None:
    async with trio.open_nursery() as nursery:
        surroundings = Surroundings(
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
            process_id=os.getpid(),
            hour_of=lambda time_ms: time.localtime(time_ms / 1000).tm_hour,
        )
        start = partial(run_broker, config, surroundings, _report)
        broker: Broker = await nursery.start(start)
        nursery.start_soon(_end_on_signal, broker, nursery.cancel_scope)
        nursery.start_soon(_read_again, broker, hangups)
        control = Control(broker.node, lambda: None, lambda: None)
        await control.run(nursery.cancel_scope)


def _tls(settings: dict[str, Any]) -> ServerTlsConfig | None:
    if settings["certificates"] is None:
        return None
    folder = CertificateFolder(Path(settings["certificates"]))
    name = settings["node_id"]
    return ServerTlsConfig(
        certificate=folder.certificate(name),
        key=folder.key(name),
        authorities=folder.certificate(AUTHORITY),
        mode=TlsMode.ENFORCING,
    )


def _access(settings: dict[str, Any]) -> AccessFile | None:
    return None if settings["access"] is None else read_access_file(Path(settings["access"]))


async def _read_again(broker: Broker, hangups: AsyncIterable[int]) -> None:
    """Read the certificates again at each SIGHUP, as `python -m broker` does."""
    async for _ in hangups:
        if broker.config.tls is not None:
            broker.tls.reload()


def _report(text: str, /, **_fields: object) -> None:
    logger.info(text)


def _address_or_none(text: str | None) -> Address | None:
    return None if text is None else parse_address(text)


def _network_of(listen_peers: str) -> ipaddress.IPv4Network:
    """Return the network of all members of the run, later ones included."""
    host = parse_address(listen_peers).host
    return ipaddress.IPv4Network(f"{host}/24", strict=False)


async def _end_on_signal(broker: Broker, scope: trio.CancelScope) -> None:
    with ending_signals() as signals:
        async for _ in signals:
            await broker.end()
            scope.cancel()


def main() -> None:
    """Run one broker; the error that ends it is the last line of its log."""
    settings = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    set_up_logging(settings["group"], settings["node_id"], TEXT, "info")
    collect_seldom()
    try:
        with planted(settings.get("seeded_bug")):
            trio.run(serve, settings)
    except (BrokerError, DLedgerError, RemotingError, OSError, BaseExceptionGroup) as error:
        errors = list(single(error))
        known = (BrokerError, DLedgerError, RemotingError, OSError)
        if not all(isinstance(each, known) for each in errors):
            raise
        for each in errors:
            logger.critical("stopped: %s: %s", type(each).__name__, each)
        sys.exit(1)


if __name__ == "__main__":
    main()
