"""The programs of the documentation pass `mypy --strict`, and all that they import is exported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

# Blocks that begin with an import and are no whole programs: they use names of the text around.
FRAGMENTS = {
    "filters-1": "a listener, and dots for the rest",
    "spark-2": "the session of Spark",
    "spark-cluster-2": "the session of Spark",
    "transactions-1": "a database",
}

# The files that pages save their programs in, for other programs to import.
FILES = {"own-state-machine-1": "tickets", "tutorial-2": "shop"}


def programs() -> Iterator[tuple[str, str]]:
    """Name and text of each program."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")), 1):
            name = f"{page.stem}-{number}"
            if name not in FRAGMENTS and is_program(match[1]):
                yield FILES.get(name, name.replace("-", "_").lower()), match[1]
    for path in sorted((ROOT / "docs/examples").glob("*.py")):
        yield path.stem, path.read_text(encoding="utf-8")


def is_program(block: str) -> bool:
    """Whether a block imports what it uses."""
    try:
        return any(isinstance(each, ast.Import | ast.ImportFrom) for each in ast.parse(block).body)
    except SyntaxError:
        return False  # lines of a function


def problems_of(folder: Path, sources: dict[str, str]) -> str:
    """What mypy says of programs in a folder, as a user's checker would."""
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--cache-dir=cache"]
    # Libraries that are not typed, such as msgpack and pyarrow, are the user's to deal with.
    options.append("--disable-error-code=import-untyped")
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(f"{name}.py" for name in sources)],
        cwd=folder,
        env={"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


@pytest.mark.slow
def test_the_documented_programs_are_typed_strictly(tmp_path: Path) -> None:
    sources = dict(programs())
    assert len(sources) > 40
    assert problems_of(tmp_path, sources) == ""


@pytest.mark.slow
def test_a_name_that_is_not_exported_is_found(tmp_path: Path) -> None:
    found = problems_of(tmp_path, {"program": "from dledger.local_group import trio\n"})
    assert "does not explicitly export" in found
