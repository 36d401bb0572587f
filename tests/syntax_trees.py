"""The syntax trees of the project's files, which many tests look at."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


def tree_of(path: Path) -> ast.Module:
    """The tree of a file, parsed once in a process. Tests share it: they must not change it."""
    return _tree(path.read_text(encoding="utf-8"))


@cache
def _tree(text: str) -> ast.Module:
    """Trees have no cycles and stay: to look for garbage in them takes longer than to parse."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
