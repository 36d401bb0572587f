"""The syntax trees of the project's files, which many tests look at."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def tree_of(path: Path) -> ast.Module:
    """The tree of a file, parsed once in a process. Tests share it: they must not change it."""
    return _tree(path.read_text(encoding="utf-8"))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a tree, in the order of `ast.walk`, which takes as long as to parse a file."""
    with _kept_for_good():
        return tuple(ast.walk(tree))


@cache
def _tree(text: str) -> ast.Module:
    with _kept_for_good():
        return ast.parse(text)


@contextmanager
def _kept_for_good() -> Iterator[None]:
    """What is made here has no cycles and stays: to look for garbage in it would take long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
