"""Hold our files against Java DLedger 0.4.0's own store: `make interop-java`.

Needs Maven and a JDK; says so in one line where they are missing. Maven fetches DLedger the first
time, afterwards nothing is fetched. Exits 0 if every scenario ended well. An argument runs only
the scenarios whose name holds it.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.interop.java_store import Failed, JavaStore
from tests.interop.scenarios import Place, Scenario, all_scenarios
from tests.interop.toolchain import NoJava, Toolchain, Unbuildable, build

BUILD = Path(__file__).parents[2] / "build" / "interop"


class Result(NamedTuple):
    """How a scenario ended: its seconds, what it told, what went wrong."""

    name: str
    took_s: float
    told: str
    problem: str


def main(arguments: list[str]) -> int:
    """Run all; the exit code."""
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        toolchain = build(BUILD)
    except NoJava as error:
        print(f"skipped: {error}")
        return 0
    except Unbuildable as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    chosen = [one for one in all_scenarios() if all(word in one.name for word in arguments)]
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=BUILD))
    print(f"files of this run: {folder}")
    results = [
        run(scenario, folder / str(number), toolchain) for number, scenario in enumerate(chosen)
    ]
    show(results)
    failures = sum(bool(one.problem) for one in results)
    print(f"{len(results) - failures} ok, {failures} failed")
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


def run(scenario: Scenario, folder: Path, toolchain: Toolchain) -> Result:
    """Run one scenario in a folder and a Java of its own."""
    folder.mkdir()
    began = time.monotonic()
    told = problem = ""
    with JavaStore(toolchain, folder / "java.log") as java:
        try:
            told = scenario.run(Place(java, folder))
        except Failed as error:
            problem = str(error)
        except Exception as error:  # whatever it was, the other scenarios are worth running
            problem = f"{type(error).__name__}: {error}"
    took_s = time.monotonic() - began
    print(f"{problem or 'ok'}: {scenario.name} ({took_s:.1f} s)", flush=True)
    return Result(scenario.name, took_s, told, problem)


def show(results: list[Result]) -> None:
    """Print the table."""
    table = Table("scenario", "seconds", "what was compared")
    for one in results:
        table.add_row(one.name, f"{one.took_s:.1f}", one.problem or one.told)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
