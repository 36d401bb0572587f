"""Plants a mistake in this process: functions get the code that they have in the patched source."""

from __future__ import annotations

import dis
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

from jepsen_like.mutants.mutant import ROOT, Mutant, MutantUnusable, all_mutants, module_of


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a mistake in this process, for the length of a block; None plants nothing.

    Functions that were imported before have the mistake as well, as it is their code that changes.
    Raises MutantUnusable if it does not fit, or changes more than the bodies of functions.
    """
    changed = [] if name is None else list(_changes(all_mutants()[name]))
    try:
        for function, _, code in changed:
            function.__code__ = code
        yield
    finally:
        for function, code, _ in changed:
            function.__code__ = code


def _changes(mutant: Mutant) -> Iterator[tuple[FunctionType, CodeType, CodeType]]:
    for file, text in mutant.patched().items():
        module = importlib.import_module(module_of(file))
        before = _compiled((ROOT / file).read_text(encoding="utf-8"), file)
        yield from _changed(module, before, _compiled(text, file), mutant.name)


def _compiled(text: str, file: str) -> CodeType:
    return compile(text, str(ROOT / file), "exec", dont_inherit=True)


def _changed(
    owner: Any, before: CodeType, after: CodeType, name: str
) -> Iterator[tuple[FunctionType, CodeType, CodeType]]:
    """Yield the functions of a module or class whose code differs, each with both codes."""
    if _frame(before) != _frame(after):
        raise MutantUnusable(f"{name}: it changes more than functions in {before.co_qualname}")
    for was, comes in zip(_parts(before), _parts(after), strict=True):
        if _unplaced(was) == _unplaced(comes):
            continue
        if was.co_flags & inspect.CO_OPTIMIZED:
            yield _function(owner, was), was, comes
        else:  # the body of a class
            yield from _changed(getattr(owner, was.co_name), was, comes, name)


def _parts(code: CodeType) -> list[CodeType]:
    return [value for value in code.co_consts if isinstance(value, CodeType)]


def _frame(code: CodeType) -> CodeType:
    """Return the code of a module or class without that of its functions and classes."""
    others = [None if isinstance(value, CodeType) else value for value in code.co_consts]
    return _unplaced(code.replace(co_consts=tuple(others)))


def _unplaced(code: CodeType) -> CodeType:
    """Return the code without its place in the source."""
    values = [_unplaced(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    if not code.co_flags & inspect.CO_OPTIMIZED:
        noted = _noted(code)
        values = [None if one in noted else one for one in values]
    return code.replace(co_firstlineno=1, co_linetable=b"", co_consts=tuple(values))


def _noted(code: CodeType) -> list[object]:
    """Return the notes of a class body on its source since 3.13: its line, and attributes of
    methods.
    """
    instructions = list(dis.get_instructions(code))
    return [
        loaded.argval
        for loaded, stored in pairwise(instructions)
        if stored.argval in ("__firstlineno__", "__static_attributes__")
    ]


def _function(owner: Any, code: CodeType) -> FunctionType:
    """Return the function of a module or class that has this code."""
    found = inspect.getattr_static(owner, code.co_name)
    candidates: tuple[Any, ...] = (
        (found.fget, found.fset) if isinstance(found, property) else (found,)
    )
    for candidate in candidates:
        function = inspect.unwrap(getattr(candidate, "__func__", candidate))
        if inspect.isfunction(function) and function.__code__ == code:
            return function
    raise MutantUnusable(f"{code.co_qualname} is not what its file says")
