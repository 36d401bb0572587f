"""The name server on trio."""

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from dledger.metrics.serving_metrics import serve_process_metrics
from nameserver.brokers import Speaker
from nameserver.errors import SettingNotKept
from nameserver.figures import Figures
from nameserver.processors import Asker, Processors
from nameserver.routes import RouteTable
from nameserver.setting_file import SettingFile
from nameserver.settings import SettingTable
from remoting.net.address import Address
from remoting.net.answering import Steps, answer_each
from remoting.net.connection import Connection
from remoting.net.server import ServerLimits, listen, serve_listeners
from remoting.net.tls import ServerTls
from remoting.wire.command import Command
from remoting.wire.quoted import quoted
from remoting.wire.signature import Credentials

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)

# RocketMQ's port.
NAMESERVER_PORT: Final = 9876

# The longest wait between two checks for expired brokers. A broker that expires sooner is dropped
# in time.
SCAN_S: Final = 10.0


async def serve_nameserver(
    host: str,
    port: int = NAMESERVER_PORT,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
    limits: ServerLimits | None = None,
    tls: ServerTls | None = None,
    settings_file: Path | None = None,
    may_change: Callable[[str], bool] = lambda _host: True,
    metrics: Address | None = None,
    admin: Callable[[], Credentials | None] = lambda: None,
) -> None:
    """Be a name server until cancelled. Start it by `nursery.start`, which returns the address.

    Args:
        host: the address to listen on.
        port: 0 takes a free one.
        task_status: gets the address listened on.
        limits: the defaults if None.
        tls: only plain connections if None.
        settings_file: where settings (100-102) are kept; only in memory if None.
        may_change: returns whether a host may register brokers and change routes and settings.
        admin: returns the user whose signature such requests need; None if they need none.
        metrics: where GET /metrics, /healthz and /readyz are answered; nowhere if None.

    Raises:
        AddressInUse, ConfigInvalid: `metrics` cannot be had.
        SettingFileUnreadable: the file of settings cannot be used.
        PortInUse, ListenFailed, TooFewDescriptors: see `remoting.net.server.serve`.
    """
    routes = RouteTable()
    settings = _settings(settings_file)
    figures = Figures()
    handler = _Handler(routes, Processors(routes, settings, may_change, admin), figures)
    limits = (limits or ServerLimits()).within_descriptors()
    listeners = await listen(host, port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_scan, routes)
        nursery.start_soon(_forget, routes)
        if metrics is not None:
            await nursery.start(serve_process_metrics, str(metrics), _scrapes(figures, routes))
        await serve_listeners(listeners, handler, task_status=task_status, limits=limits, tls=tls)


def _scrapes(figures: Figures, routes: RouteTable) -> "Callable[[], Iterable[Metric]]":
    # Imported here, because prometheus_client takes an eighth of a start.
    from nameserver.exposition import metrics_of

    return lambda: metrics_of(figures, routes)


def _settings(path: Path | None) -> SettingTable:
    """Load the settings; each change is written to the file before it is answered."""
    settings = SettingTable()
    if path is not None:
        file = SettingFile(path)
        file.load(settings)

        def keep() -> None:
            try:
                file.save(settings)
            except OSError as error:
                raise SettingNotKept(str(path), error.strerror or str(error)) from None

        settings.keep = keep
    return settings


async def _scan(routes: RouteTable) -> None:
    while True:
        now = trio.current_time()
        expiry = routes.next_expiry()
        await trio.sleep_until(now + SCAN_S if expiry is None else min(expiry, now + SCAN_S))
        for live in routes.expire(trio.current_time()):
            _log.warning(
                "broker %s (%s, id %d) was silent for %.0f s and is dropped",
                quoted(live.identity.address),
                quoted(live.identity.broker_name),
                live.identity.broker_id,
                live.timeout_s,
            )


async def _forget(routes: RouteTable) -> None:
    """Forget the topics of brokers that are gone, in steps."""
    while True:
        leaving = trio.Event()
        routes.places.on_leaving = leaving.set
        await leaving.wait()
        while routes.places.forget_some():
            await trio.lowlevel.checkpoint()


class _Handler:
    def __init__(self, routes: RouteTable, processors: Processors, figures: Figures) -> None:
        self._routes = routes
        self._figures = figures
        self._table = processors.table

    def on_open(self, connection: Connection) -> None:
        self._figures.connections += 1

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, self._answer)

    def on_close(self, connection: Connection) -> None:
        self._figures.connections -= 1
        ends_itself = trio.current_effective_deadline() == -inf  # this server is cancelled
        for live in self._routes.connection_closed(connection, trio.current_time()):
            _log.log(
                logging.INFO if live.is_ending or ends_itself else logging.WARNING,
                "broker %s (%s, id %d) closed its connection and is dropped",
                quoted(live.identity.address),
                quoted(live.identity.broker_name),
                live.identity.broker_id,
            )

    def _answer(self, connection: Connection, command: Command) -> Command | Steps | None:
        self._figures.count(command.code, command.code in self._table)
        return self._table.handle(
            Asker(Speaker(connection, connection.peer.host), trio.current_time()), command
        )
