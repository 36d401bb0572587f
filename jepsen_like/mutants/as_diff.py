"""A mistake as a patch of the source: the function that it replaces, and what takes its place."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from jepsen_like.chaos.brokers.seeded_bugs import SEEDED_BUGS
from jepsen_like.chaos.members.answering import CorrectAnswering
from jepsen_like.chaos.members.seeded_bugs import BUGS
from jepsen_like.mutants.mutant import SERVICES, Mutant
from jepsen_like.simulation.seeded_bug import Replacement
from jepsen_like.simulation.tiers import TIERS

PROJECT: Final = Path(__file__).parents[2]


def diff_of(mutant: Mutant) -> str:
    """A unified diff for each function that the mistake replaces.

    A function that calls the one it replaces shows how, and not what that one does.
    """
    if mutant.area == SERVICES and mutant.name in BUGS:
        made = BUGS[mutant.name].make
        return _diff(CorrectAnswering, made, mutant, CorrectAnswering.__name__)
    bugs = SEEDED_BUGS if mutant.area == SERVICES else TIERS[mutant.area].bugs
    return "".join(_diffs(bugs[mutant.name].replacements(), mutant))


def _diffs(replacements: list[Replacement], mutant: Mutant) -> Iterator[str]:
    for owner, name, value in replacements:
        found = inspect.getattr_static(owner, name)
        title = f"{_defining(owner, name).__name__}.{name}" if inspect.isclass(owner) else name
        yield _diff(_callable(found), _callable(value), mutant, title)


def _defining(owner: type, name: str) -> type:
    """The class of an attribute: this one, or one that it inherits from."""
    return next(one for one in owner.__mro__ if name in vars(one))


def _callable(value: Any) -> Any:
    return value.fget if isinstance(value, property) else value


def _diff(before: Any, after: Any, mutant: Mutant, title: str) -> str:
    was, comes = _source(before, title), _source(after, title)
    path = _path(before)
    lines = difflib.unified_diff(was, comes, f"{path} {title}", f"{path} {title}, {mutant.name}")
    return "".join(lines)


def _source(value: Callable[..., Any] | Any, title: str) -> list[str]:
    """The lines of a function or class; of another value, its assignment."""
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return [f"{title} = {value!r}\n"]
    return textwrap.dedent(inspect.getsource(value)).splitlines(keepends=True)


def _path(value: Any) -> str:
    if not (inspect.isfunction(value) or inspect.isclass(value)):
        return ""
    path = Path(inspect.getfile(value))
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)
