"""Nemeses of users: found by `module:Class`, and carried out like those of the catalogue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from dledger.declared_error import DeclaredError
from jepsen_like.chance import Chance
from jepsen_like.chaos.harness_failed import HarnessFailed
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.catalogue import NEMESES, Kind, Lane, Nemesis
from jepsen_like.chaos.nemeses.executor import Done, Executor, Executors, Skipped
from jepsen_like.users_code import said, users_module

USERS_NEMESIS_MARK = ":"


class NemesisUnusable(DeclaredError):
    """A name leads to no nemesis. Its text is one line that says what to do."""

    problem: str


@dataclass(frozen=True)
class Nemeses:
    """The nemeses of a run by name, and the executors of those of the user."""

    catalogue: Mapping[str, Nemesis] = field(default_factory=lambda: dict(NEMESES))
    executors: Executors = field(default_factory=dict)


def find_nemeses(names: Sequence[str]) -> Nemeses:
    """Return the catalogue with the nemeses of users among these names.

    A user's nemesis is a class that is made without arguments. It has `kinds`, one or more `Kind`,
    and `carry_out(group, chance, kind)`, an asynchronous context manager that breaks something when
    it is entered, yields a `Done`, and heals when it is left. `lane` is Lane.PROCESSES unless it
    says otherwise. Raises NemesisUnusable.
    """
    catalogue = dict(NEMESES)
    executors: dict[str, Executor] = {}
    for name in names:
        if name in catalogue:
            continue
        made = _made(name)
        taken = {kind.name for one in catalogue.values() for kind in one.kinds}
        catalogue[name] = _described(name, made, taken)
        executors[name] = _executor(name, made)
    return Nemeses(catalogue, executors)


def _made(name: str) -> Any:
    if USERS_NEMESIS_MARK not in name:
        raise NemesisUnusable(f"no nemesis is named {name}: `jepsen-like list` has them all")
    module_name, _, class_name = name.partition(USERS_NEMESIS_MARK)
    module = users_module(name, NemesisUnusable)
    found = getattr(module, class_name, None)
    if not callable(found):
        raise NemesisUnusable(f"{name}: {module_name} has no class {class_name}")
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise NemesisUnusable(f"{name}: not made without arguments: {said(error)}") from error


def _described(name: str, made: Any, taken: set[str]) -> Nemesis:
    kinds = getattr(made, "kinds", None)
    if not isinstance(kinds, tuple) or not kinds or not all(type(kind) is Kind for kind in kinds):
        raise NemesisUnusable(f"{name}: `kinds` is no tuple of Kind")
    if not callable(getattr(made, "carry_out", None)):
        raise NemesisUnusable(f"{name} has no carry_out(group, chance, kind)")
    for kind in kinds:
        if kind.name in taken:
            raise NemesisUnusable(f"{name}: there is a kind {kind.name} already")
        if not (0 <= kind.shortest_s <= kind.longest_s and kind.settle_s >= 0):
            raise NemesisUnusable(f"{name}: {kind.name} lasts from shortest_s to longest_s, >= 0")
    lane = getattr(made, "lane", Lane.PROCESSES)
    if not isinstance(lane, Lane):
        raise NemesisUnusable(f"{name}: `lane` is no Lane")
    explanation = (type(made).__doc__ or name).strip().splitlines()[0]
    return Nemesis(explanation, kinds, lane)


def _executor(name: str, made: Any) -> Executor:
    """Return its executor. An error in it is a failure of the harness, not of the system."""

    @asynccontextmanager
    async def carried_out(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        try:
            async with made.carry_out(group, chance, kind) as done:
                if not isinstance(done, Done):
                    raise HarnessFailed(f"{name} yields {done!r} and no Done")
                yield done
        except (Skipped, HarnessFailed):
            raise
        except (Exception, SystemExit) as error:
            raise HarnessFailed(f"{name}: {said(error)}") from error

    return carried_out
