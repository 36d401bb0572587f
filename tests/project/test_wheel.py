"""The wheel holds everything, and works from an empty folder, far from this checkout."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
SCRIPTS: dict[str, str] = PYPROJECT["project"]["scripts"]
# Modules that people type, and the servers' own entry points that our processes start.
RUNNABLE = sorted(
    {target.partition(":")[2] for target in SCRIPTS.values()}  # each is named like its package
    | {"broker", "nameserver"}
)
# Generous for a busy machine with two cores; each step takes one to three seconds alone.
STEP_MAX_S = 120


def run(arguments: list[str], folder: Path, **environment: str) -> str:
    """Run Python in a folder; its output, or a failure that shows it."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=STEP_MAX_S,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the content of the wheel, as pip installs it."""
    target = tmp_path_factory.mktemp("installed")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    run([*install, "--disable-pip-version-check", "--target", str(target), str(wheel)], target)
    return target


def test_the_wheel_holds_the_packages_their_types_and_the_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
    assert "jepsen_like/chaos/inside/calls.c" in names  # it is built on the user's machine
    assert "jepsen_like/mutants/catalogue/broker.toml" in names
    (metadata,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    assert f"{metadata}/licenses/LICENSE" in names
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, metadata}


def test_each_package_is_imported_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    program = (
        f"import {', '.join(PACKAGES)}\nfor each in {', '.join(PACKAGES)}: print(each.__file__)"
    )
    # -W error: an import that warns would fail the tests of those who use us.
    printed = run(["-W", "error", "-c", program], tmp_path, PYTHONPATH=str(installed))
    places = [Path(line) for line in printed.splitlines()]
    assert [place.parent for place in places] == [installed / package for package in PACKAGES]


@pytest.mark.parametrize("module", RUNNABLE)
def test_each_command_explains_itself_from_the_wheel(
    installed: Path, tmp_path: Path, module: str
) -> None:
    printed = run(["-m", module, "--help"], tmp_path, PYTHONPATH=str(installed))
    assert "usage" in printed.lower()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", sorted(SCRIPTS))
def test_each_script_is_made_by_the_wheel(installed: Path, script: str) -> None:
    assert (installed / "bin" / script).is_file()


def test_pytest_finds_the_fixtures_and_loads_no_more_than_it_needs(
    installed: Path, tmp_path: Path
) -> None:
    printed = run(["-m", "pytest", "--fixtures", "-q"], tmp_path, PYTHONPATH=str(installed))
    assert "mq_cluster" in printed
    assert "trio_mq_cluster" in printed
    program = "import sys, command_entry.pytest_fixtures; print('dledger_mq' in sys.modules)"
    assert run(["-c", program], tmp_path, PYTHONPATH=str(installed)).strip() == "False"
