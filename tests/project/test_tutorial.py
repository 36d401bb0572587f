"""docs/tutorial.md works, word by word, from an empty folder with the wheel alone."""

import shutil
from pathlib import Path

import pytest

from dledger.free_ports import free_ports
from tests.project.typed_page import Interrupt, SaveFile, TypedCommand, masked, steps_of
from tests.project.typing_reader import Reader, lend_dependencies

PROJECT = Path(__file__).parent.parent.parent
TUTORIAL = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PORTS = [f"127.0.0.1:{port}" for port in (20911, 20912, 20913, 20921, 20922, 20923)]


# In the default suite up to where the first group is ended, which takes a third of the time.
@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_tutorial_does_what_it_says(wheel: Path, tmp_path: Path, whole: bool) -> None:
    folder, lent = tmp_path / "empty", tmp_path / "lent"
    folder.mkdir()
    lent.mkdir()
    shutil.copy(wheel, folder)
    lend_dependencies("dledger", lent)
    taken = [f"127.0.0.1:{port}" for port in free_ports(len(PORTS))]
    with Reader(folder, dict(zip(PORTS, taken, strict=True)), lent) as reader:
        for step in steps_of(TUTORIAL):
            reader.do(step)
            if isinstance(step, Interrupt) and not whole:
                break


def test_the_tutorial_kills_saves_and_looks() -> None:
    typed = [step.command for step in steps_of(TUTORIAL) if isinstance(step, TypedCommand)]
    for words in ("pip install", "dledger group", "kill -9", "dledger status", "dledger snapshot"):
        assert any(words in command for command in typed), words


# Below, the reading of pages is shown to be able to fail.

SAMPLE = """
<!-- file: a.py -->
```python
print(1)
```

```console
$ python a.py
1
$ true
```

<!-- another terminal -->
```console
$ serve
ready: n0 leads group
```

<!-- Ctrl-C -->
"""


def test_a_page_is_read_in_the_order_in_which_it_is_followed() -> None:
    assert list(steps_of(SAMPLE)) == [
        SaveFile("a.py", "print(1)\n"),
        TypedCommand("python a.py", ["1"]),
        TypedCommand("true", []),
        TypedCommand("serve", ["ready: n0 leads group"], elsewhere=True),
        Interrupt(),
    ]


def test_a_console_block_that_begins_without_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="not with a command"):
        list(steps_of("```console\nhello\n```\n"))


def test_what_differs_from_run_to_run_is_masked_and_words_are_not() -> None:
    one = ["0\t1\tnoop\t", "1\t1\tnormal\thello", "n0 leads group", "7\t2\t480", ""]
    two = ["0\t1\tnoop\t", "1\t2\tnoop\t", "2\t2\tnormal\thello", "n2 leads group", "8\t2\t528"]
    assert masked(one) == masked(two)
    assert masked(one) != masked([line.replace("hello", "hullo") for line in two])


@pytest.mark.parametrize(
    ("command", "shown"),
    [("echo two", ["one"]), ("false", []), ("echo one; (exit 3)", ["one"]), ("echo one", [])],
)
def test_a_command_that_does_something_else_fails(
    tmp_path: Path, command: str, shown: list[str]
) -> None:
    with Reader(tmp_path, {}, tmp_path) as reader, pytest.raises(AssertionError, match=r"\$"):
        reader.do(TypedCommand(command, shown))


def test_only_what_the_wheel_depends_on_is_lent(tmp_path: Path) -> None:
    lend_dependencies("dledger", tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"trio", "msgpack", "click", "attr"} <= names
    assert not names & {"dledger", "pytest", "hypothesis", "sphinx", "pyspark"}
