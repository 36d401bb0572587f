"""Commands over a group: run members, append, read. `offline_commands` reads folders at rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
import trio

from dledger import __version__
from dledger.client.group_client import GroupClient
from dledger.command_line.credentials_option import CREDENTIALS
from dledger.command_line.ending import Commands
from dledger.command_line.option_sources import Tables, config_option
from dledger.command_line.options import INDEX, TIMEOUT, flag, json_option, option
from dledger.command_line.server_signals import cancel_on_signal
from dledger.command_line.standard_streams import say_done, telling_what_is_done
from dledger.command_line.tls_options import TLS_KEYS, given_tls, tls_arguments, tls_options
from dledger.commands.append_command import append
from dledger.commands.group_options import NamedGroup, given_group, group_options
from dledger.commands.members_command import members
from dledger.commands.offline_commands import dump, verify
from dledger.commands.recover_command import backup, recover, restore
from dledger.commands.repair_command import rejoin, repair
from dledger.commands.serve_command import serve
from dledger.commands.status_command import status
from dledger.entry import Entry, Magic
from dledger.errors import ConfigInvalid, DLedgerError, OutcomeUnknown, OutsideLog
from dledger.local_group import load_or_make_group, run_group
from dledger.network.tls_config import TlsConfig
from dledger.shown_output import shown_on
from dledger.store.noop_body import decode_noop_body

_MAGICS = {int(magic): magic.name.lower() for magic in Magic}

# How often the command asks a starting group for its leader.
_POLL_S = 0.2


_HELP = """A replicated, durable log.

\b
Try it, with a whole group on this machine:
  dledger group --nodes 3 --dir /tmp/log        three members, real processes
  dledger append --dir /tmp/log hello world     two entries, on a quorum's disks
  dledger tail --dir /tmp/log --follow          every committed entry
  dledger status --dir /tmp/log --watch         the leader, and every member's progress

\b
Run it, with a process on each machine:
  dledger serve --node n0 --peers n0=10.0.0.1:20911,... --dir /var/lib/log
  dledger --config /etc/dledger.toml serve      the same, from a file

Each command has its own --help, with examples.

Exit codes: 0 done; 1 not done, or a check found a problem; 2 a wrong call; 3 it is not known
whether it was done; 130 Ctrl-C.
"""

# In the order in which a new user needs them.
_SECTIONS = {
    "Use a group": ("append", "get", "tail"),
    "Run a group": ("group", "serve", "status", "members", "transfer", "snapshot"),
    "Look at files": ("dump", "verify", "backup"),
    "Mend what broke": ("repair", "rejoin", "restore", "recover"),
}


class CommandsBySection(Commands):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = {name for names in _SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        for section, names in {**_SECTIONS, "More": others}.items():
            rows = [
                (name, command.get_short_help_str(formatter.width))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)


@click.group(
    cls=CommandsBySection,
    program="dledger",
    expected=(DLedgerError,),
    is_unknown=lambda error: isinstance(error, OutcomeUnknown),
    help=_HELP,
)
@click.version_option(__version__)
def commands() -> None: ...


@commands.command("group")
@option("--nodes", "How many members.", default=3, type=click.IntRange(1, 9))
@option(
    "--dir",
    "folder",
    "Folder for all members; made if missing.",
    required=True,
    type=click.Path(path_type=Path),
)
@option("--group", "Name of the group.", default="group")
@tls_options
def local_group(nodes: int, folder: Path, group: str) -> None:
    """Run a whole group on this machine, each member a process of its own.

    \b
      dledger group --nodes 3 --dir /tmp/log

    Prints a line that begins with `ready` once a leader serves. Ctrl-C stops all.
    """  # noqa: D301 - click's mark, a backspace
    peers = load_or_make_group(folder, group, nodes)
    trio.run(_run_group, group, peers, folder, given_tls())


async def _run_group(
    group: str, peers: Mapping[str, str], folder: Path, tls: TlsConfig | None
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_on_signal, nursery.cancel_scope)
        nursery.start_soon(run_group, group, peers, folder, tls_arguments(tls))
        client = GroupClient(group, peers, tls)
        leader = None
        while leader is None:
            await trio.sleep(_POLL_S)
            leader = await client.ready_leader()
        click.echo(f"ready: {leader} leads {group}; dledger status --dir {folder}")


@commands.command()
@group_options
@json_option("One JSON object.")
@click.argument("index", type=INDEX)
def get(as_json: bool, index: int) -> None:
    """Print the committed entry at INDEX.

    \b
      dledger get --dir /tmp/log 7
      dledger get --dir /tmp/log --json 7
    """  # noqa: D301 - click's mark, a backspace
    entries = trio.run(given_group().client().entries, index)
    if not entries or entries[0].index != index:
        raise ConfigInvalid("INDEX", f"no committed entry {index}")
    _print_entry(entries[0], as_json)


@commands.command()
@group_options
@option("--from", "first", "First index.", default=0, type=INDEX)
@flag("--follow", "-f", "Go on with each new entry, until Ctrl-C.")
@json_option("One JSON object an entry.")
def tail(first: int, follow: bool, as_json: bool) -> None:
    """Print the committed entries, one line each: index, term, kind, body.

    \b
      dledger tail --dir /tmp/log
      dledger tail --dir /tmp/log --from 100 --follow

    With --follow the command waits for members that fail, once one has answered; Ctrl-C ends it
    with exit code 0.
    """  # noqa: D301 - click's mark, a backspace
    group = given_group()
    if not follow:
        trio.run(_tail, group.client(), first, as_json)
        return
    with suppress(KeyboardInterrupt):
        trio.run(_follow, group, first, as_json)


async def _tail(client: GroupClient, first: int, as_json: bool) -> None:
    """Print the committed entries of any member that answers, even without a leader."""
    while entries := await client.entries(first):
        for entry in entries:
            _print_entry(entry, as_json)
            first = entry.index + 1


async def _follow(group: NamedGroup, first: int, as_json: bool) -> None:
    async with group.log() as log:
        while True:
            try:
                async for entry in log.tail(first):
                    _print_entry(entry, as_json)
                    first = entry.index + 1
            except OutsideLog as error:
                if error.first <= first:
                    raise
                first = error.first  # a snapshot replaces the earlier entries


def _print_entry(entry: Entry, as_json: bool) -> None:
    noop = entry.magic == Magic.NOOP
    text = "" if noop else entry.body.decode("utf-8", "backslashreplace")
    kind = _MAGICS.get(entry.magic, str(entry.magic))
    if as_json:
        row = {
            "index": entry.index,
            "term": entry.term,
            "pos": entry.pos,
            "kind": kind,
            "body": text,
        }
        if noop and (said := decode_noop_body(entry.body)) is not None:
            row |= {"leader": said.leader, "time_ms": said.time_ms}
        click.echo(json.dumps(row))
    else:
        line = f"{entry.index}\t{entry.term}\t{kind}\t{text}"
        click.echo(shown_on(sys.stdout, line))


@commands.command()
@group_options
@option("--to", "target", "The member to lead; else the one with the longest log.")
@option("--timeout", "timeout_s", "Seconds to wait for a leader.", default=10.0, type=TIMEOUT)
def transfer(target: str | None, timeout_s: float) -> None:
    """Hand leadership to another member, without waiting for an election timeout.

    \b
      dledger transfer --dir /tmp/log --to n1
      dledger transfer --peers n0=10.0.0.1:20911

    Appends are refused for a moment. If the member does not take over within an election timeout,
    the old leader goes on, and the exit status says so.
    """  # noqa: D301 - click's mark, a backspace
    group = given_group()
    leader = trio.run(_transfer, group.client(), target, timeout_s)
    say_done(f"{leader} leads {group.name}")


async def _transfer(client: GroupClient, target: str | None, timeout_s: float) -> str:
    if target is not None:
        await _check_member(client, "--to", target)
    return await client.transfer(target, timeout_s)


async def _check_member(client: GroupClient, option: str, node_id: str) -> None:
    """Raise ConfigInvalid unless this is a member of the group, according to the group."""
    members = await client.ask_members()
    if node_id not in members:
        raise ConfigInvalid(option, f"{node_id} is not one of {', '.join(members)}")


@commands.command()
@group_options
@option("--node", "node_id", "The member to write one; else every member.")
@json_option("One JSON object a member.")
def snapshot(node_id: str | None, as_json: bool) -> None:
    """Have running members write a snapshot of their state now.

    \b
      dledger snapshot --peers n0=10.0.0.1:20911
      dledger snapshot --peers n0=10.0.0.1:20911 --node n2

    The members of `dledger serve` and `dledger group` have no state, and write none.
    Prints the last entry in it, its size in bytes and its path, once it is on the member's disk.
    """  # noqa: D301 - click's mark, a backspace
    trio.run(_snapshot, given_group().client(), node_id, as_json)


async def _snapshot(client: GroupClient, node_id: str | None, as_json: bool) -> None:
    if node_id is not None:
        await _check_member(client, "--node", node_id)
    for member in [node_id] if node_id is not None else await client.ask_members():
        written = await client.snapshot(member)
        with telling_what_is_done(f"the snapshot of {member} is written"):
            if as_json:
                click.echo(json.dumps({"node": member, **written._asdict()}))
            else:
                click.echo(f"{member}\t{written.index}\t{written.size}\t{written.path}")


for _command in (
    *(append, serve, status, members, dump, verify),
    *(repair, rejoin, recover, backup, restore),
):
    commands.add_command(_command)
config_option(
    commands,
    Tables(commands.commands, ("group", "peers", "timeout", CREDENTIALS, *TLS_KEYS)),
    "DLEDGER_CONFIG",
    "A file with options, in TOML; see `dledger serve --print-config`.",
)
