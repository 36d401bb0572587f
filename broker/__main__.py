"""The command: `python -m broker --group broker-a --node n0 --peers ... --listen ... --dir ...`."""

import argparse
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

import trio

from broker.config import DEFAULT_CLUSTER, BrokerConfig, read_address, read_nameservers
from broker.errors import BrokerError, SettingInvalid
from broker.retention import RetentionPolicy, read_hours
from broker.server import run_broker
from dledger.config import parse_peers
from dledger.errors import DLedgerError
from dledger.node.collector import collect_seldom
from remoting.errors import RemotingError


class _Parser(argparse.ArgumentParser):
    """Tells a wrong argument as one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        """Raises SettingInvalid."""
        raise SettingInvalid("arguments", f"{message}; see python -m broker --help")


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until a signal ends it; 0 then, 1 after one line about an error."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = _parser().parse_args(arguments)
        config = read_config(options)
        collect_seldom()
        trio.run(_run, config, options.exit_with_stdin)
    except (BrokerError, DLedgerError, RemotingError, OSError) as error:
        return _fail(error)
    except BaseExceptionGroup as group:
        known = group.subgroup((BrokerError, DLedgerError, RemotingError, OSError))
        if known is None:
            raise
        return _fail(_first(known))
    return 0


def read_config(options: argparse.Namespace) -> BrokerConfig:
    """The settings of the command line. Raises SettingInvalid, ConfigInvalid."""
    return BrokerConfig(
        group=options.group,
        node_id=options.node,
        peers=parse_peers("--peers", options.peers),
        listen=read_address("--listen", options.listen),
        advertise=read_address("--advertise", options.advertise) if options.advertise else None,
        nameservers=read_nameservers(options.nameservers),
        directory=Path(options.dir),
        cluster=options.cluster,
        auto_create_topics=options.auto_create_topics,
        retention=RetentionPolicy(
            keep_hours=options.keep_hours,
            at_hours=read_hours(options.delete_at_hours),
            clean_percent=options.disk_clean_percent,
            force_percent=options.disk_force_percent,
            refuse_percent=options.disk_refuse_percent,
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m broker",
        description="One member of a group of brokers: a RocketMQ broker over a replicated log.",
        epilog="Ctrl-C or SIGTERM ends it. Example: python -m broker --group broker-a --node n0 "
        "--peers n0=127.0.0.1:20911 --listen 127.0.0.1:10911 --nameservers 127.0.0.1:9876 "
        "--dir /tmp/n0",
    )
    add = parser.add_argument
    add("--group", required=True, help="name of the group, which clients see as the broker name")
    add("--node", required=True, help="this member's id, one of --peers")
    add("--peers", required=True, help="all members: n0=host:port,n1=host:port,...")
    add("--listen", required=True, help="where clients connect: host:port")
    add("--advertise", default="", help="how clients reach that, if not by --listen: IPv4:port")
    add("--nameservers", default="", help="name servers: host:port;host:port")
    add("--dir", required=True, help="folder for the log and the consume queues")
    add("--cluster", default=DEFAULT_CLUSTER, help="name of the cluster (default: %(default)s)")
    add(
        "--auto-create-topics",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether a first message creates its topic (default: yes)",
    )
    _add_retention(parser)
    add(
        "--exit-with-stdin",
        action="store_true",
        help="end when standard input ends, so that no child outlives its parent",
    )
    return parser


def _add_retention(parser: argparse.ArgumentParser) -> None:
    """The settings that say how long messages are kept."""
    default, add = RetentionPolicy(), parser.add_argument
    add(
        "--keep-hours",
        type=int,
        default=default.keep_hours,
        help="messages are kept for so many hours (default: %(default)s)",
    )
    add(
        "--delete-at-hours",
        default=";".join(map(str, sorted(default.at_hours))),
        help="older ones go at these hours of the day, local time, as 4;16 (default: %(default)s)",
    )
    for name, percent, what in (
        ("clean", default.clean_percent, "older ones go at any hour"),
        ("force", default.force_percent, "the oldest ones go, however old"),
        ("refuse", default.refuse_percent, "no message is taken"),
    ):
        words = f"{what} when more of the disk is used, in percent (default: %(default)s)"
        add(f"--disk-{name}-percent", type=int, default=percent, help=words)


async def _run(config: BrokerConfig, exit_with_stdin: bool) -> None:
    """Run until a signal, or until standard input ends."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_at_signal, nursery.cancel_scope)
        if exit_with_stdin:
            nursery.start_soon(_cancel_at_end_of_input, nursery.cancel_scope)
        await run_broker(
            config,
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
            process_id=os.getpid(),
            report=lambda line: print(line, flush=True),
            hour_of=lambda time_ms: time.localtime(time_ms / 1000).tm_hour,
        )
        nursery.cancel_scope.cancel()


async def _cancel_at_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _signal in signals:
            scope.cancel()


async def _cancel_at_end_of_input(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stream:
        while await stream.receive_some(4096):
            continue
    scope.cancel()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first plain error of a group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _fail(error: BaseException) -> int:
    print(f"broker: {error}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
