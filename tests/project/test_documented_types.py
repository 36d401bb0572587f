"""The programs of the documentation pass `mypy --strict`, and all that they import is exported."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

# Blocks that begin with an import and are no whole programs: they use names of the text around.
FRAGMENTS = {
    "filters-1": "a listener, and dots for the rest",
    "rocketmq-5-clients-1": "a client that is not installed here",
    "rocketmq-5-clients-2": "the same",
    "spark-2": "the session of Spark",
    "spark-cluster-2": "the session of Spark",
    "transactions-1": "a database",
}

# The files that pages save their programs in, for other programs to import.
FILES = {"test-your-state-machine-1": "tickets", "tutorial-2": "shop"}


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


def problems_of(folder: Path, sources: dict[str, str]) -> list[str]:
    """What mypy says of programs in a folder.

    It is strict, as a user's own would be, and has the options of `make types`: so it finds there
    what it needs to know of the project.
    """
    for name, text in sources.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    options = ["--config-file=pyproject.toml", "--no-error-summary", "--no-color-output"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *(str(folder / f"{name}.py") for name in sources)],
        cwd=ROOT,
        env={"MYPYPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return ended.stdout.splitlines()


def test_the_documented_programs_are_typed_strictly_and_import_what_is_exported(
    tmp_path: Path,
) -> None:
    sources = dict(programs())
    assert len(sources) > 40
    wrong = {
        "not_exported": "from dledger.local_group import trio\n",
        "not_typed": "def f(x):\n    return x\n",
    }
    exported, typed = sorted(problems_of(tmp_path, sources | wrong))
    assert "not_exported.py:1: " in exported
    assert "does not explicitly export" in exported
    assert "not_typed.py:1: error: Function is missing a type annotation" in typed
