"""Checks many files, on all cores, within limits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jepsen_like.checkers.catalogue import CATALOGUE, linearizable, recognized
from jepsen_like.checkers.checker import Bounds, Check, Request
from jepsen_like.checkers.linearizability import ModelFailed
from jepsen_like.checkers.report import Report, Verdict
from jepsen_like.checkers.users_model import ModelUnusable, users_model
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.reading import HistoryFormat, read_history
from jepsen_like.users_modules import find_users_modules
from jepsen_like.workers import each_in_workers

# Suffixes of histories in a folder; other files, such as notes, are left out.
SUFFIXES = frozenset({".edn", ".json", ".jsonl", ".log", ".txt"})
USERS_MODEL_MARK = ":"


class Plan(NamedTuple):
    """How each file is checked. If `model` is None, its header or its functions name the model."""

    model: str | None = None
    format: HistoryFormat | None = None
    keyed: bool = False
    time_limit_s: float = 60.0
    allowed: tuple[str, ...] = ()


class Checked(NamedTuple):
    """A file and its report, or why there is none."""

    file: str
    model: str | None
    operations: int
    took_s: float
    report: Report | None
    unreadable: str | None

    @property
    def verdict(self) -> str:
        """The verdict in a word, `unreadable` included."""
        return "unreadable" if self.report is None else self.report.verdict.value


def files_of(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the named files, and the histories in the named folders.

    A folder without a history is yielded itself: it is as unreadable as a file that is missing.
    """
    for path in paths:
        if is_folder(path):
            inside = sorted(path.rglob("*"))
            found = [one for one in inside if one.suffix in SUFFIXES and one.is_file()]
            yield from found or [path]
        else:
            yield path


def is_folder(path: Path) -> bool:
    """Return whether it is a folder; not if that cannot be known."""
    try:
        return path.is_dir()
    except OSError:  # such as a name that is too long: reading it tells
        return False


def check_file(path: Path, plan: Plan) -> Checked:
    begin_s = time.monotonic()
    end_s = begin_s + plan.time_limit_s
    model, operations = plan.model, 0
    report: Report | None = None
    unreadable: str | None = None
    try:
        if is_folder(path):
            raise HistoryUnreadable(str(path), None, "no history is in this folder")
        history = read_history(path, plan.format, keyed=plan.keyed)
        operations = len(history.operations)
        model = model or recognized(history)
        request = Request(Bounds(lambda: time.monotonic() > end_s), plan.allowed)
        report = _check(history, model)(history, request)
    except HistoryUnreadable as error:
        unreadable = str(error)
    except (ModelFailed, ModelUnusable) as error:
        unreadable = f"{path}: {error}"
    except MemoryError:
        report = Report(Verdict.UNKNOWN, "the memory of this machine is over")
    took_s = time.monotonic() - begin_s
    return Checked(str(path), model, operations, took_s, report, unreadable)


def _check(history: History, model: str | None) -> Check:
    if model is None:
        functions = sorted({operation.function for operation in history.operations})
        what = f"its functions are {', '.join(functions[:8])}" if functions else "it is empty"
        raise history.unreadable(None, f"which model? Name it with --model; {what}")
    if USERS_MODEL_MARK in model:
        return linearizable(users_model(model))
    if model not in CATALOGUE:
        names = ", ".join(sorted(CATALOGUE))
        raise history.unreadable(None, f"no model is named {model}: there are {names}")
    return CATALOGUE[model].check


def check_files(paths: Sequence[Path], plan: Plan, jobs: int | None = None) -> Iterator[Checked]:
    """Check files, and yield each result in its turn as soon as it is known.

    There is one process for each core unless `jobs` is given.
    """
    if plan.model is not None and USERS_MODEL_MARK in plan.model:
        find_users_modules()  # models lie beside the histories
    check = partial(check_file, plan=plan)
    processes = min(jobs or os.cpu_count() or 1, len(paths))
    if processes <= 1:
        yield from map(check, paths)
        return
    yield from each_in_workers(check, paths, processes)
