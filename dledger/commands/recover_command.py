"""`dledger recover`, `backup` and `restore`: a group that begins again from one member."""

from __future__ import annotations

import datetime
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import trio

from dledger.command_line.options import EXISTING_FOLDER, FOLDER, flag, json_option, option
from dledger.command_line.rows import new_table, table_console
from dledger.command_line.standard_streams import telling_what_is_done
from dledger.config import parse_address, parse_peers, parse_reached_address
from dledger.core.membership.change_errors import ConfigurationInvalid
from dledger.core.membership.configuration import check_member_id
from dledger.errors import ConfigInvalid
from dledger.local_group import GROUP_FILE, load_group
from dledger.rescue.backup import back_up
from dledger.rescue.group_recovery import (
    Recovery,
    RecoveryRefused,
    check_holds_entries,
    recover_group,
)
from dledger.rescue.survivor import Survivor, longest, look_at
from dledger.sockets import dialled
from dledger.unwrapping_nursery import unwrapping_nursery

# A running member accepts a connection in a fraction of this, even on another continent.
_KNOCK_S = 1.5


_HELP = """Begin a group again from FOLDER when most of its voters are lost for good.

Never needed while a majority can be brought back: start them, and nothing is lost. Entries
that only the lost members held are lost for good. The member of FOLDER must be stopped; it is
then the only voter. Without --accept-loss-after nothing is changed: the command shows what it
would change, and in a terminal asks for the group's name.

\b
The remaining members may differ. Recover from the one that holds the most:
  dledger recover --compare /srv/a/dledger-n0 /srv/b/dledger-n2
  dledger recover /srv/b/dledger-n2

Old members are refused from then on. To bring one back: `dledger rejoin` on its folder,
start it with --join (by `dledger serve`, or by the program that ran it, as `python -m broker`),
and `dledger members --add`.
"""


_without_check = flag(
    "--without-check",
    "unchecked",
    "DANGEROUS: do not ask other members whether they run. If they do, two groups of one name "
    "go on apart, and each lacks what the other one acknowledges.",
)


@click.command(help=_HELP)
@flag("--compare", "Only look: which of FOLDERS holds the most?")
@option("--peers", "All members, as n0=127.0.0.1:20911,n1=... where the folder does not name them.")
@_without_check
@option("--address", "Where this member will listen, if elsewhere.", metavar="HOST:PORT")
@option(
    "--learner",
    "A new member, with an empty folder, that gets the log.",
    multiple=True,
    metavar="ID=HOST:PORT",
)
@option(
    "--accept-loss-after",
    "accepted",
    "Yes, entries committed after entry N may be lost. N: the last entry in FOLDER.",
    type=click.IntRange(0),
    metavar="N",
)
@json_option("One JSON object.")
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    type=EXISTING_FOLDER,
)
def recover(
    folders: tuple[Path, ...],
    compare: bool,
    peers: str | None,
    unchecked: bool,
    address: str | None,
    learner: tuple[str, ...],
    accepted: int | None,
    as_json: bool,
) -> None:
    survivors = [look_at(str(folder)) for folder in folders]
    if compare:
        _print_comparison(survivors, as_json)
        return
    if len(survivors) > 1:
        raise ConfigInvalid("FOLDERS", "name one, or compare them with --compare")
    (survivor,) = survivors
    members = _known_members(survivor, peers)
    own = _own_address(survivor, survivor.node_id, members, address, unchecked=unchecked)
    learners = {
        name: str(parse_reached_address(f"--learner {name}", place))
        for name, place in parse_peers("--learner", ",".join(learner)).items()
    }
    if not as_json:
        _print_survivor(survivor, members)
    if not unchecked:
        _check_no_member_runs(survivor, members)
    if accepted is None:
        accepted = _ask(survivor)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    done = recover_group(
        survivor.folder, accepted, own, mark=_drawn_mark(), learners=learners, when=now
    )
    _print_done(done, as_json)


def _check_name(node_id: str) -> None:
    try:
        check_member_id(node_id)
    except ConfigurationInvalid as error:
        raise ConfigInvalid("--node", error.problem) from error


def _drawn_mark() -> str:
    """Draw the mark that distinguishes this recovery from any other."""
    return secrets.token_hex(8)


def _known_members(survivor: Survivor, peers: str | None) -> Mapping[str, str]:
    """Return the group's members by its log, the options, or the file of `dledger group`."""
    if survivor.configuration is not None:
        return survivor.configuration.configuration.addresses
    if peers is not None:
        return parse_peers("--peers", peers)
    base = Path(survivor.folder).parent
    return load_group(base)[1] if (base / GROUP_FILE).exists() else {}


def _own_address(
    survivor: Survivor,
    node_id: str,
    members: Mapping[str, str],
    address: str | None,
    *,
    unchecked: bool,
) -> str:
    """Return where the member will listen, after checking that all others could be asked.

    Otherwise the check whether they run would be skipped silently. Raises ConfigInvalid.
    """
    own = address or members.get(node_id)
    voters = survivor.first_voters
    if survivor.configuration is not None:
        voters = tuple(sorted(survivor.configuration.configuration.voting_members))
    unknown = [name for name in voters if name not in members and name != survivor.node_id]
    if not unchecked and (unknown or not (voters or members)):
        names = ", ".join(voters) or "that it had"
        raise ConfigInvalid(
            "--peers",
            f"the folder does not say where the members listen: name all of them ({names}), as "
            "n0=10.0.0.1:20911,n1=..., so that they are asked whether they run",
        )
    if own is None:
        raise ConfigInvalid("--address", f"where {node_id} listens is not known: give it")
    return str(parse_reached_address("--address", own))


def _check_no_member_runs(survivor: Survivor, members: Mapping[str, str]) -> None:
    """Refuse to recover a group with running members: two groups of its name would exist."""
    listening = trio.run(_who_listens, members)
    if listening:
        raise RecoveryRefused(
            survivor.folder,
            f"{' and '.join(listening)} can be reached: if the group still has a quorum, it needs "
            "no recovery; else stop them first",
        )


async def _who_listens(members: Mapping[str, str]) -> list[str]:
    listening = []

    async def knock(node_id: str, address: str) -> None:
        with trio.move_on_after(_KNOCK_S):
            try:
                stream = await dialled(*parse_address(f"peers.{node_id}", address))
            except OSError:
                return
            await stream.aclose()
            listening.append(f"{node_id} at {address}")

    async with unwrapping_nursery() as nursery:  # raises Ctrl-C as a plain KeyboardInterrupt
        for node_id, address in members.items():
            nursery.start_soon(knock, node_id, address)
    return sorted(listening)


def _ask(survivor: Survivor) -> int:
    """Ask for the group's name. Raises RecoveryRefused without a terminal, or for another name."""
    if not sys.stdin.isatty():
        raise RecoveryRefused(
            survivor.folder,
            "nothing was changed; what is said above happens with "
            f"--accept-loss-after {survivor.last_index}",
        )
    typed = click.prompt(f"Type the group's name ({survivor.group}) to begin it again", type=str)
    if typed != survivor.group:
        raise RecoveryRefused(survivor.folder, "that is not its name: nothing was changed")
    return survivor.last_index


def _print_survivor(survivor: Survivor, members: Mapping[str, str]) -> None:
    last, committed = survivor.last_index, survivor.committed
    lines = [
        f"group {survivor.group}, generation {survivor.generation}, member {survivor.node_id}",
        f"  log         entries {survivor.first_index}..{last}, the last one of term "
        f"{survivor.last_term}; the highest term heard of is {survivor.term}",
        f"  committed   at least up to entry {committed}",
        f"  members     {', '.join(f'{n} at {a}' for n, a in members.items()) or 'not named here'}",
        f"MAY BE LOST    every entry after {last}: the lost members may have committed some",
    ]
    if committed < last:
        lines.append(
            f"WILL COUNT     entries {committed + 1}..{last}: they become committed, even if they "
            "were not"
        )
    if not survivor.proven:
        lines.append("IN DOUBT       this member lost promises before: choose another if possible")
    lines += [f"DAMAGE         {problem}" for problem in survivor.problems]
    click.echo("\n".join(lines))


def _print_done(done: Recovery, as_json: bool) -> None:
    members = " ".join(f"{node_id} at {address}" for node_id, address in done.members.items())
    begins = (
        f"group {done.group} begins again: generation {done.generation}, term {done.term}, "
        f"members {members}"
    )
    with telling_what_is_done(begins):
        if as_json:
            click.echo(json.dumps(asdict(done)))
            return
        click.echo(
            f"{begins}\n"
            f"copies of the changed files are in {done.copies}\n"
            f"start {done.node_id} as usual; then let others join: `dledger rejoin` on the folder "
            "of an old member, its start with --join by the program that ran it (`dledger serve`, "
            "or `python -m broker` for a broker), `dledger members --add`"
        )


def _print_comparison(survivors: Sequence[Survivor], as_json: bool) -> None:
    best = longest(survivors)
    if as_json:
        rows = [survivor.as_dict() for survivor in survivors]
        click.echo(json.dumps({"folders": rows, "best": best.folder}))
        return
    words = ("folder", "node")
    columns = (*words, "generation", "last term", "last entry", "committed", "problems")
    told = [(*one.reach, one.committed, len(one.problems)) for one in survivors]
    named = [(one.folder, one.node_id, *row) for one, row in zip(survivors, told, strict=True)]
    table = new_table(columns, named, words, box="SIMPLE")
    # The operator copies a folder's name: print it in full even if it exceeds the terminal.
    table_console().print(table, soft_wrap=True, crop=False)
    for survivor in survivors:
        for problem in survivor.problems:
            click.echo(problem, err=True)
    click.echo(f"the most is in {best.folder}")


@click.command()
@option(
    "--to", "target", "The copy is a folder dledger-<id> in this one.", required=True, type=FOLDER
)
@json_option("One JSON object.")
@click.argument("folder", type=EXISTING_FOLDER)
def backup(folder: Path, target: Path, as_json: bool) -> None:
    """Copy the newest snapshot and the committed log of the member in FOLDER.

    \b
      dledger backup /var/lib/log/dledger-n1 --to /backup/monday

    The member may run. The copy holds the entries that it recorded as committed, at most a second
    behind, and nothing else. All sums are checked, in FOLDER and in the copy. One member's copy is
    enough; take one that `dledger status` shows without a lag.
    """  # noqa: D301 - click's mark, a backspace
    made = back_up(str(folder), str(target))
    line = (
        f"{made.folder}: group {made.group}, entries {made.first_index}..{made.last_index}, "
        f"{made.size} bytes"
    )
    with telling_what_is_done(f"the copy is made: {line}"):
        click.echo(json.dumps(asdict(made)) if as_json else line)


@click.command()
@option(
    "--dir",
    "target",
    "Where the member's data goes: the --dir of its `dledger serve`.",
    required=True,
    type=FOLDER,
)
@option("--node", "node_id", "Its name, if not that of the member that was copied.")
@option("--address", "Where it will listen, if elsewhere.", metavar="HOST:PORT")
@option("--peers", "All members, as n0=127.0.0.1:20911,... if the copy names none.")
@_without_check
@json_option("One JSON object.")
@click.argument("copy", type=EXISTING_FOLDER)
def restore(
    copy: Path,
    target: Path,
    node_id: str | None,
    address: str | None,
    peers: str | None,
    unchecked: bool,
    as_json: bool,
) -> None:
    """Begin a group again from COPY, which `dledger backup` made.

    \b
      dledger restore /backup/monday --dir /var/lib/log

    COPY stays as it is. The group keeps its name and is in a new generation, as after `dledger
    recover`: its member is the only voter, others join, and old members are refused. Entries that
    the group committed after the copy was made are not in it.
    """  # noqa: D301 - click's mark, a backspace
    survivor = look_at(str(copy))
    members = _known_members(survivor, peers)
    name = node_id or survivor.node_id
    own = _own_address(survivor, name, members, address, unchecked=unchecked)
    # Before anything is copied: a folder of half a member would stand in the way of a second call.
    _check_name(name)
    check_holds_entries(survivor, min(survivor.last_index, survivor.committed))
    if not unchecked:
        _check_no_member_runs(survivor, {**members, name: own})
    made = back_up(str(copy), str(target), node_id)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    done = recover_group(made.folder, made.last_index, own, mark=_drawn_mark(), when=now)
    _print_done(done, as_json)
