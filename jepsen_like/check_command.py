"""`jepsen-like check`: whether recorded histories keep the promise that is named."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from enum import IntEnum
from pathlib import Path

import click

from dledger.command_line.options import NumberRange, flag, json_option, option
from dledger.command_line.progress import counted
from dledger.command_line.rows import print_table, say
from dledger.shown_output import shown_on
from jepsen_like.check_files import (
    USERS_MODEL_MARK,
    Checked,
    Plan,
    check_files,
    files_of,
    is_folder,
)
from jepsen_like.checkers.catalogue import CATALOGUE
from jepsen_like.checkers.report import Report
from jepsen_like.history.reading import HistoryFormat
from jepsen_like.users_modules import find_users_modules
from jepsen_like.workers import JOBS_MAX

# Without a terminal: a line after so many seconds.
SECONDS_A_PLAIN_LINE = 10.0
# Problems shown of one file; --json has more of them.
PROBLEMS_SHOWN_MAX = 8


class CheckExit(IntEnum):
    """Exit statuses, the worst first: the worst of all files counts."""

    INVALID = 1
    UNREADABLE = 3
    UNKNOWN = 2
    VALID = 0


_EXITS = {
    "invalid": CheckExit.INVALID,
    "unreadable": CheckExit.UNREADABLE,
    "unknown": CheckExit.UNKNOWN,
    "valid": CheckExit.VALID,
}
_STYLES = {"invalid": "bold red", "unreadable": "red", "unknown": "yellow"}


def _models_text() -> str:
    width = max(map(len, CATALOGUE))
    lines = [f"  {name:<{width}}  {entry.promise}" for name, entry in CATALOGUE.items()]
    return "\n".join(lines)


EPILOG = f"""\b
Models:
{_models_text()}
  {"module:Model":<{max(map(len, CATALOGUE))}}  linearizable: a class of yours

\b
Exit status:
  0  valid: every history keeps the promise
  1  invalid: one does not, and the smallest part that shows it is printed
  2  unknown: time or memory was over, or a history does not tell
  3  unreadable: a file is not a history of this model
Of several files the worst counts, in the order 1, 3, 2, 0.

\b
Examples:
  jepsen-like check run/history.jsonl
  jepsen-like check etcd_001.log --model cas-register
  jepsen-like check histories/ --jobs 4 --time-limit-seconds 30
  jepsen-like check consumed.jsonl --model queue --allow duplicated
  jepsen-like check stack.jsonl --model my_models:Stack
"""


@click.command(epilog=EPILOG)
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@option(
    "--model",
    "What the histories must keep; else as their headers or their functions say.",
    metavar="NAME",
)
@option(
    "--format",
    "format_name",
    "The format of the files; else recognized by the first line of each.",
    type=click.Choice([one.value for one in HistoryFormat]),
)
@flag("--keyed", "Values are pairs [key value], as Jepsen's may be.")
@option(
    "--allow",
    "Tell problems of this kind, but do not count them. May be given several times.",
    multiple=True,
    metavar="KIND",
)
@option(
    "--time-limit-seconds",
    "time_limit_s",
    "For each file; its verdict is unknown if this is over.",
    default=60.0,
    type=NumberRange(min=0.0, min_open=True),
)
@option("--jobs", "Processes; one a core unless given.", type=click.IntRange(1, JOBS_MAX))
@json_option("Print one JSON object and nothing else.")
def check(
    files: tuple[Path, ...],
    model: str | None,
    format_name: str | None,
    keyed: bool,
    allow: tuple[str, ...],
    time_limit_s: float,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Say whether recorded histories keep a promise.

    A FILE is a history: what clients called, when, and what they were told; docs/histories.md has
    the format, and histories and logs of Jepsen, Knossos and Elle are read too. Of a folder all
    histories are checked: files that end in .jsonl, .json, .edn, .log or .txt.
    """
    format_ = HistoryFormat(format_name) if format_name is not None else None
    plan = Plan(model, format_, keyed, time_limit_s, allow)
    if model is not None and USERS_MODEL_MARK in model:
        find_users_modules()  # models lie beside the histories
    paths = list(files_of(files))
    with redirect_stdout(sys.stderr):  # what a user's model prints
        results = list(_with_progress(check_files(paths, plan, jobs), len(paths), quiet=as_json))
    if as_json:
        click.echo(json.dumps({"files": [_as_dict(one) for one in results]}))
    elif len(results) == 1 and not is_folder(files[0]):
        _tell_one(results[0])
    else:
        _tell_many(results)
    verdicts = {one.verdict for one in results}
    sys.exit(next(code for name, code in _EXITS.items() if name in verdicts))


def _with_progress(results: Iterable[Checked], total: int, *, quiet: bool) -> Iterator[Checked]:
    if quiet:
        yield from results
        return
    begin_s = told_s = time.monotonic()

    def plain(done: int) -> str | None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s < SECONDS_A_PLAIN_LINE:
            return None
        told_s = now_s
        return f"{done} of {total} files after {now_s - begin_s:.0f} s"

    with counted("files", total, plain) as advance:
        for result in results:
            advance()
            yield result


def _tell_one(one: Checked) -> None:
    if one.report is None:
        click.echo(shown_on(sys.stderr, one.unreadable or ""), err=True)
        return
    say(f"{one.file}: {one.verdict}: {one.report.summary}")
    tell_details(one.report)
    say(f"model {one.model}, {one.operations} operations, {one.took_s:.2f} s")


def tell_details(report: Report) -> None:
    """Print the problems of a report, and its text, below its verdict."""
    for problem in report.problems[:PROBLEMS_SHOWN_MAX]:
        say(f"  {problem.kind}: {problem.how}")
    more = sum(report.counts.values()) - min(len(report.problems), PROBLEMS_SHOWN_MAX)
    if more > 0:
        say(f"  ... and {more} more (--json has up to 32 of each kind)")
    if report.allowed:
        say(f"  allowed, and not counted: {', '.join(report.allowed)}")
    for line in report.text:
        say(f"  {line}")


def _tell_many(results: Sequence[Checked]) -> None:
    columns = ("file", "verdict", "model", "operations", "seconds", "what was found")
    styles = [_STYLES.get(one.verdict) for one in results]
    print_table(columns, map(_row, results), styles=styles, no_wrap=False)
    counts = Counter(one.verdict for one in results)
    told = ", ".join(f"{counts[name]} {name}" for name in _EXITS if counts[name])
    say(f"{len(results)} files: {told}")


def _row(one: Checked) -> list[str]:
    what = one.unreadable if one.report is None else one.report.summary
    figures = [str(one.operations), f"{one.took_s:.2f}"]
    return [one.file, one.verdict, one.model or "", *figures, what or ""]


def _as_dict(one: Checked) -> dict[str, object]:
    told: dict[str, object] = {
        "file": one.file,
        "verdict": one.verdict,
        "model": one.model,
        "operations": one.operations,
        "seconds": round(one.took_s, 3),
    }
    if one.report is None:
        return {**told, "error": one.unreadable}
    report = one.report
    return {
        **told,
        "summary": report.summary,
        "counts": dict(report.counts),
        "allowed": list(report.allowed),
        "problems": [
            {"kind": problem.kind, "how": problem.how, "lines": list(problem.lines)}
            for problem in report.problems
        ],
        "figures": dict(report.figures),
        "text": list(report.text),
    }
