"""What README.md tells people to type works.

A console block may only name targets that the Makefile has. A python block with the comment
`<!-- run -->` on the line before it is run in an empty folder; it must end well, and print what
the text block after it shows, if there is one.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
# An example that a reader is meant to try must not let them wait.
EXAMPLE_MAX_S = 60
RUN_MARK = "<!-- run -->"


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, and whether it is marked to be run."""

    language: str
    text: str
    line: int
    marked: bool


@dataclass(frozen=True)
class Example:
    """A program of the README, and what it prints according to it."""

    program: str
    printed: str | None
    line: int


def fenced_blocks(markdown: str) -> Iterator[Block]:
    """The fenced blocks of a text, in order; raises ValueError when one is not closed."""
    lines = iter(enumerate(markdown.splitlines(), start=1))
    last_words = ""
    for number, line in lines:
        opening = re.fullmatch(r"(```+)\s*([\w-]*).*", line)
        if opening is None:
            last_words = line.strip() or last_words
            continue
        fence, language = opening.groups()
        content: list[str] = []
        for _, inner in lines:
            if inner.rstrip() == fence:
                break
            content.append(inner)
        else:
            raise ValueError(f"the block of line {number} is not closed")
        text = "".join(f"{inner}\n" for inner in content)
        yield Block(language, text, number, marked=last_words == RUN_MARK)
        last_words = ""


def make_targets_named(markdown: str) -> set[str]:
    """The targets of every `make X Y` in the console blocks of a text."""
    targets: set[str] = set()
    for block in fenced_blocks(markdown):
        if block.language == "console":
            for line in re.findall(r"^\$ (?:.*&& *)?make\b([^#&|;\n]*)", block.text, re.MULTILINE):
                words = line.split()
                targets.update(word for word in words if "=" not in word and word[0] != "-")
    return targets


def makefile_targets(makefile: str) -> set[str]:
    """The targets that a Makefile explains, and so means to be typed."""
    return set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


def examples(markdown: str) -> list[Example]:
    """The marked programs of a text; raises ValueError when a mark stands before anything else."""
    blocks = list(fenced_blocks(markdown))
    found: list[Example] = []
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if not block.marked:
            continue
        if block.language != "python":
            raise ValueError(f"the block of line {block.line} is marked but is not python")
        printed = after.text if after is not None and after.language == "text" else None
        found.append(Example(block.text, printed, block.line))
    if len(found) != markdown.count(RUN_MARK):
        raise ValueError(f"a {RUN_MARK} does not stand right before a block")
    return found


def run_example(example: Example, folder: Path) -> None:
    """Run a program as a reader would: from a file, in a folder with nothing else in it."""
    program = folder / "example.py"
    program.write_text(example.program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_MAX_S,
        check=False,
    )
    assert done.returncode == 0, f"the program of line {example.line} failed: {done.stderr}"
    if example.printed is not None:
        printed = done.stdout.splitlines()
        assert printed == example.printed.splitlines(), f"the program of line {example.line}"


def test_each_make_target_of_the_readme_exists() -> None:
    named = make_targets_named(README)
    assert {"demo", "test"} <= named
    assert named <= makefile_targets(MAKEFILE)


def test_the_readme_counts_the_dependencies() -> None:
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"{len(declared['project']['dependencies'])} direct dependencies" in README


def commands_named(markdown: str) -> Iterator[list[str]]:
    """The words of every command of ours in the console blocks of a text."""
    for block in fenced_blocks(markdown):
        if block.language == "console":
            for line in re.findall(r"^\$ ((?:dledger|jepsen-like)\b.*)$", block.text, re.MULTILINE):
                yield shlex.split(line, comments=True)


@pytest.mark.long  # test_typed_commands.py sees the same in one process
@pytest.mark.parametrize("words", list(commands_named(README)), ids=" ".join)
def test_each_command_of_the_readme_has_the_options_it_is_given(words: list[str]) -> None:
    module = words[0].replace("-", "_")
    subcommand = next((word for word in words[1:] if not word.startswith("-")), "")
    shown = subprocess.run(
        [sys.executable, "-m", module, *filter(None, [subcommand]), "--help"],
        capture_output=True,
        text=True,
        timeout=EXAMPLE_MAX_S,
        check=True,
    )
    for option in filter(lambda word: word.startswith("-"), words[1:]):
        assert re.search(rf"(^|[\s,]){option}\b", shown.stdout), f"{option} of {' '.join(words)}"


def test_each_example_of_the_readme_does_what_it_says(tmp_path: Path) -> None:
    for example in examples(README):
        folder = tmp_path / f"line-{example.line}"
        folder.mkdir()
        run_example(example, folder)


# Below, the checks are shown to be able to fail.

SAMPLE = f"""
```console
$ make setup  # some words
$ cd elsewhere && make sim SEEDS=5 bench
made it
```

{RUN_MARK}

```python
print("one")
print("two")
```

It prints:

```text
one
two
```

```python
print("not marked")
```
"""


def test_targets_are_found_in_console_blocks_only() -> None:
    assert make_targets_named(SAMPLE + "\n$ make nothing\n") == {"setup", "sim", "bench"}


def test_a_marked_program_is_found_with_what_it_prints(tmp_path: Path) -> None:
    (example,) = examples(SAMPLE)
    assert example.program == 'print("one")\nprint("two")\n'
    assert example.printed == "one\ntwo\n"
    run_example(example, tmp_path)


@pytest.mark.parametrize(
    ("program", "printed"),
    [("print(1)", "2\n"), ("raise SystemExit(3)", None), ("import nothing_of_that_name", None)],
)
def test_a_program_that_does_something_else_fails(
    tmp_path: Path, program: str, printed: str | None
) -> None:
    with pytest.raises(AssertionError):
        run_example(Example(program, printed, line=1), tmp_path)


@pytest.mark.parametrize(
    ("markdown", "message"),
    [
        ("```python\nprint(1)\n", "not closed"),
        (f"{RUN_MARK}\n```console\n$ make\n```\n", "is not python"),
        (f"{RUN_MARK}\nwords\n```python\nprint(1)\n```\n", "right before a block"),
    ],
)
def test_a_readme_with_a_broken_block_is_refused(markdown: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        examples(markdown)
