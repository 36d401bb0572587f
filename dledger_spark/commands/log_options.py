"""The options that name the logs of a command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from dledger.command_line.options import Decorated, given, kept_option, options
from dledger.shown_output import escaped

if TYPE_CHECKING:
    from dledger_spark.log.left_out import LeftOut
    from dledger_spark.log.readable_log import ReadableLog

# For PYTHONWARNINGS of Spark's processes: the commands have lines of their own.
TOLD_HERE: Final = "ignore:unrecorded entries,ignore:left-out entries"
_OF_NETWORK: Final = (
    ("--tls-cert", "tlsCert", "With --bootstrap: certificate to show; see docs/security.md."),
    ("--tls-key", "tlsKey", "Its key."),
    ("--tls-ca", "tlsCa", "Certificates of the authorities that are believed."),
    (
        "--credentials",
        "credentials",
        "With --bootstrap: a file with access_key and secret_key of a user, for a group that asks "
        "for users.",
    ),
)
_HOW: Final = "give --path, or --bootstrap and --group"


@dataclass(frozen=True, slots=True)
class NamedLogs:
    """The logs that the options of a command name.

    Attributes:
        sources: the options of the data source "dledger" for each path, or for the network.
        first: the value of --from.
        last: the value of --to.
        fail_on_data_loss: the value of --fail-on-data-loss.
    """

    sources: tuple[dict[str, str], ...]
    first: str | None
    last: str | None
    fail_on_data_loss: bool

    def open(self) -> list[ReadableLog]:
        """Open the log of each group. Raises DledgerSparkError."""
        from dledger_spark.query.named_logs import open_all  # noqa: PLC0415
        from dledger_spark.query.source_options import read_options  # noqa: PLC0415

        return [log for source in self.sources for log in open_all(read_options(source))]

    def ranges(self) -> list[tuple[ReadableLog, range]]:
        """Return each log with the entries of --from and --to; print a hint if there are more.

        Raises DledgerSparkError, also if the log does not have these entries.
        """
        from dledger_spark.errors import OptionInvalid  # noqa: PLC0415
        from dledger_spark.log.log_range import END, begin_kept  # noqa: PLC0415

        logs = self.open()
        for option, value in (("from", self.first), ("to", self.last)):
            if value and value.lower() != END and len(logs) > 1:
                groups = ", ".join(repr(log.group) for log in logs)
                problem = f"an index is one group's, and there are {groups}: name one of them"
                raise OptionInvalid(option, value, problem)
        found = []
        for log in logs:
            first = begin_kept(
                log.first_index, self.first, fail_on_data_loss=self.fail_on_data_loss
            )
            if first != self.first:
                gone = f"entries {self.first}..{log.first_index - 1}"
                click.echo(f"{gone} are lost, and left out", err=True)
            found.append((log, log.resolve(first, self.last)))
        if self.last is None:
            hint_unrecorded(logs)
        return found


def print_left_out(left_out: Iterable[LeftOut]) -> None:
    """Print which entries a command leaves out, and why."""
    for each in left_out:
        line = f"entries {each.first}..{each.last} are lost, and left out: {each.problem}"
        click.echo(escaped(line), err=True)


def hint_unrecorded(logs: Sequence[ReadableLog]) -> None:
    """Print a hint if folders hold entries behind those that are recorded as committed."""
    behind = {log.name: log.unrecorded for log in logs}
    names = [name for name, count in behind.items() if count]
    if not names:
        return
    where = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    click.echo(
        f"left out, because not recorded as committed yet: {sum(behind.values())} at the end of "
        f"{where}; a running node records this four times a second, and --bootstrap asks the "
        "group itself",
        err=True,
    )


def log_options(
    *, ranges: bool = True, many: bool = False, data_loss: bool = True
) -> Callable[[Decorated], Decorated]:
    """Declare --path, and --bootstrap with --group and TLS, which `given_logs` returns.

    `ranges` adds --from and --to, `data_loss` adds --fail-on-data-loss. With `many`, --path may be
    given several times.
    """
    wanted = [
        kept_option(
            "--path",
            "Folder of a node's log, or a folder above those of several nodes or groups. "
            "Nodes may be running in it." + (" May be given again." if many else ""),
            multiple=many,
            metavar="DIR",
        ),
        kept_option(
            "--bootstrap",
            "Instead of --path: members of a running group, which is read over the network. "
            "With TLS name them: n0=HOST:PORT,...",
            multiple=True,
            metavar="HOST:PORT,...",
        ),
        kept_option(
            "--group",
            "With --bootstrap: the name of the group. For several groups give both options "
            "again, or only --group if the same members have them all.",
            multiple=True,
            metavar="NAME",
        ),
        *(
            kept_option(
                name,
                text,
                type=click.Path(dir_okay=False),
                envvar="DLEDGER_" + name.removeprefix("--").replace("-", "_").upper(),
                show_envvar=True,
            )
            for name, _, text in _OF_NETWORK
        ),
        kept_option(
            "--max-bytes-per-second",
            "With --bootstrap: what each task reads of the members at most.",
            type=click.IntRange(min=1),
        ),
    ]
    if ranges:
        wanted += [
            kept_option("--from", "First entry [default: first kept]", metavar="INDEX"),
            kept_option(
                "--to",
                "Last entry. By default the last one that is recorded as committed; "
                "'end' takes all entries, committed or not.",
                metavar="INDEX",
            ),
        ]
    if data_loss:
        wanted.append(
            kept_option(
                "--fail-on-data-loss/--no-fail-on-data-loss",
                "End with an error when entries are lost (a file of the log is missing, or "
                "retention was faster than the command), or go on without them.",
                default=True,
            )
        )

    return options(*wanted)


def given_logs() -> NamedLogs:
    """Return the logs that the options name. Raises click.UsageError if they do not fit."""
    paths = given("--path") or ()
    paths = (paths,) if isinstance(paths, str) else paths
    bootstrap, groups = given("--bootstrap"), given("--group")
    if bool(paths) == bool(bootstrap) or bool(bootstrap) != bool(groups):
        raise click.UsageError(_HOW)
    values = {source: given(name) for name, source, _ in _OF_NETWORK}
    network = {source: str(value) for source, value in values.items() if value is not None}
    if (limit := given("--max-bytes-per-second")) is not None:
        network["maxBytesPerSecond"] = str(limit)
    loses = given("--fail-on-data-loss") is not False
    common = {} if loses else {"failOnDataLoss": "false"}
    if paths:
        # Options for the network from the environment are ignored for a folder.
        sources = [{"path": path, **common} for path in paths]
    else:
        sources = [{**_of_network(bootstrap, groups), **network, **common}]
    return NamedLogs(tuple(sources), given("--from"), given("--to"), loses)


def _of_network(bootstrap: Sequence[str], groups: Sequence[str]) -> dict[str, str]:
    if len(bootstrap) == 1:
        return {"bootstrap": bootstrap[0], "group": ",".join(groups)}
    if len(bootstrap) != len(groups) or len(set(groups)) < len(groups):
        raise click.UsageError("give --group once for each --bootstrap, each group once")
    return {"bootstrap": json.dumps(dict(zip(groups, bootstrap, strict=True)))}
