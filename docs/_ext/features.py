"""Writes the table of docs/rocketmq-features.md: `python -m docs._ext.features`.

What is there is told in features.toml. Which tests prove it is told by the tests themselves, with
`@pytest.mark.feature("F31")`, or for all tests of a file with `pytestmark`.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "rocketmq-features.md"

_BEGIN: Final = "<!-- made by docs/_ext/features.py -->\n"
_END: Final = "<!-- end -->\n"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature of RocketMQ.

    Attributes:
        mark: its name in tests: "F31".
        name: RocketMQ's feature.
        here: what this project has for it, or an empty text.
        reason: why it is not there, or an empty text.
    """

    mark: str
    name: str
    here: str = ""
    reason: str = ""


def features() -> list[Feature]:
    """All features, by their numbers."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [Feature(mark, **row) for mark, row in table.items()]


@cache
def proofs() -> dict[str, list[str]]:
    """By feature: the names of the tests that prove it, or of whole files of tests."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.feature(" not in text:
            continue  # nine files of ten
        for name, marks in _marked(path, ast.parse(text)):
            for mark in marks:
                found.setdefault(mark, []).append(name)
    return found


def _marked(path: Path, tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        ):
            yield f"all of {path.name}", list(_marks(ast.walk(node)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [mark for one in node.decorator_list for mark in _marks([one])]
            yield node.name, marks


def _marks(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The features that `pytest.mark.feature(...)` names among some nodes."""
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "feature"
        ):
            yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))


def rows() -> str:
    """The table."""
    found = proofs()
    lines = ["| | RocketMQ | here | proof |", "|---|---|---|---|"]
    for feature in features():
        names = [
            name if name.startswith("all of") else f"`{name}`"
            for name in found.get(feature.mark, [])
        ]
        here = feature.here or f"**not here**: {feature.reason}"
        lines.append(f"| {feature.mark} | {feature.name} | {here} | {', '.join(names)} |")
    return "\n".join(lines)


def page_with(text: str, table: str) -> str:
    """The page with this table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{table.strip()}\n\n{_END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), rows()), encoding="utf-8")
