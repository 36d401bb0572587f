"""Files and functions are short, well named and finished, and each check of it can fail."""

import tomllib
from pathlib import Path

import pytest

from tests.project.source_shape import (
    FILE_LINES_MAX,
    FILE_LINES_WISHED,
    FUNCTION_LINES_MAX,
    FUNCTION_LINES_WISHED,
    UNFINISHED_ERROR,
    forbidden_names,
    longer_than,
    remade_events,
    unfinished,
)
from tests.project.source_tree import SourceFile, read_tree

PROJECT = Path(__file__).parent.parent.parent
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def files() -> dict[str, SourceFile]:
    packages = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return read_tree(PROJECT, [*packages, "tests"])


@pytest.fixture(scope="module")
def product(files: dict[str, SourceFile]) -> dict[str, SourceFile]:
    return {path: file for path, file in files.items() if file.package != "tests"}


def test_no_file_and_no_function_is_too_long(product: dict[str, SourceFile]) -> None:
    # Shown by pytest -rP: what is longer than wished, but not yet refused.
    print("\n".join(longer_than(product, FILE_LINES_WISHED, FUNCTION_LINES_WISHED)))
    found = longer_than(product, FILE_LINES_MAX, FUNCTION_LINES_MAX)
    assert not found, "\n".join(found)


def test_no_name_says_only_where_code_was_put(files: dict[str, SourceFile]) -> None:
    found = forbidden_names(files)
    assert not found, "\n".join(found)


def test_nothing_is_left_unfinished(files: dict[str, SourceFile]) -> None:
    found = unfinished(files)
    assert not found, "\n".join(found)


def test_no_event_is_made_anew_where_a_wake_up_belongs(product: dict[str, SourceFile]) -> None:
    # The seats of simulated hosts have an event for each life of a member.
    served = {path: file for path, file in product.items() if file.package != "jepsen_like"}
    found = remade_events(served)
    assert not found, "use dledger.wake_up, or a parking lot\n" + "\n".join(found)


# Below, the checks are shown to be able to fail.


def one_file(root: Path, text: str, path: str = "dledger/a.py") -> dict[str, SourceFile]:
    target = root / path
    target.parent.mkdir(parents=True)
    target.write_text(text, encoding="utf-8")
    return read_tree(root, [path.partition("/")[0]])


def test_a_file_of_one_line_too_many_is_found(tmp_path: Path) -> None:
    files = one_file(tmp_path, "a = 1\n" * 11)
    assert longer_than(files, 10, 10) == ["dledger/a.py: 11 lines, more than 10"]
    assert longer_than(files, 11, 10) == []


def test_a_function_is_measured_without_its_docstring(tmp_path: Path) -> None:
    text = 'class C:\n    async def f(self):\n        """One.\n\n        Two.\n        """\n'
    files = one_file(tmp_path, text + "        a = 1\n" * 4)
    assert longer_than(files, 100, 5) == []
    assert longer_than(files, 100, 4) == ["dledger/a.py:2: f: 5 lines, more than 4"]


@pytest.mark.parametrize(
    "path", ["dledger/utils.py", "dledger/file_helpers.py", "dledger/common/a.py"]
)
def test_a_file_named_by_its_place_is_found(tmp_path: Path, path: str) -> None:
    assert len(forbidden_names(one_file(tmp_path, "", path))) == 1


@pytest.mark.parametrize("name", ["TopicManager", "NodeFactory", "IOUtils", "HelperOfNodes"])
def test_a_class_named_by_its_place_is_found(tmp_path: Path, name: str) -> None:
    assert len(forbidden_names(one_file(tmp_path, f"class {name}: ..."))) == 1


def test_a_word_that_only_begins_alike_is_not_reported(tmp_path: Path) -> None:
    text = "class Commonest: ...\nclass Utility: ...\n"
    assert forbidden_names(one_file(tmp_path, text, "dledger/manage.py")) == []


@pytest.mark.parametrize(
    "text",
    [
        "a = 1  # TO" + "DO: say why\n",
        "# FIX" + "ME\n",
        f"def f():\n    raise {UNFINISHED_ERROR}\n",
        f"def f():\n    raise {UNFINISHED_ERROR}('f')\n",
        "try:\n    a = 1\nexcept:\n    pass\n",
        "try:\n    a = 1\nexcept Exception:\n    pass\n",
        "try:\n    a = 1\nexcept (ValueError, BaseException) as error:\n    pass\n",
    ],
)
def test_unfinished_work_is_found(tmp_path: Path, text: str) -> None:
    assert len(unfinished(one_file(tmp_path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "todo = 1\n",
        "a = '# TO" + "DO'\n",
        "try:\n    a = 1\nexcept KeyError:\n    pass\n",
        "try:\n    a = 1\nexcept Exception as error:\n    print(error)\n",
    ],
)
def test_finished_work_is_not_reported(tmp_path: Path, text: str) -> None:
    assert unfinished(one_file(tmp_path, text)) == []


@pytest.mark.parametrize(
    "line",
    [
        "self._woken = trio.Event()",
        "broker.changed = Event()",
        "before, self._woken = self._woken, trio.Event()",
        "mine = self._woken = trio.Event()",
    ],
)
def test_an_event_that_is_made_anew_is_found(tmp_path: Path, line: str) -> None:
    text = f"class C:\n    async def run(self):\n        {line}\n"
    assert len(remade_events(one_file(tmp_path, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class C:\n    def __init__(self):\n        self._woken = trio.Event()\n",
        "async def ask():\n    answered = trio.Event()\n",
        "async def ask():\n    answered = asking[1] = trio.Event()\n",
    ],
)
def test_an_event_that_is_set_once_is_not_reported(tmp_path: Path, text: str) -> None:
    assert remade_events(one_file(tmp_path, text)) == []
