"""Drive clients written by others against a real group: `make clients`.

Needs the registries of Python, npm and Maven the first time. Exits 0 if every scenario ended well;
a client that cannot be installed is left out, and said so. An argument runs only the scenarios
whose name holds it.
"""

import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.clients.client_script import Failed
from tests.clients.local_cluster import LocalCluster
from tests.clients.scenarios import SCENARIOS, Place, Scenario
from tests.clients.toolchains import Toolchains, install

BUILD = Path(__file__).parents[2] / "build" / "clients"

# Scenarios wait for other people's timers most of the time.
AT_ONCE = 4

QUEUES = 4


def main(arguments: list[str]) -> int:
    toolchains = install(BUILD)
    chosen = [
        scenario
        for scenario in SCENARIOS
        if can_run(scenario, toolchains) and all(word in scenario.name for word in arguments)
    ]
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=BUILD))
    print(f"files of this run: {folder}")
    results: dict[str, tuple[float, str]] = {}
    with LocalCluster(folder) as cluster:

        def run_one(scenario: Scenario) -> None:
            results[scenario.name] = run(scenario, cluster, toolchains, folder)
            seconds, problem = results[scenario.name]
            print(f"{problem or 'ok'}: {scenario.name} ({seconds:.1f} s)", flush=True)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(run_one, [one for one in chosen if not one.breaks_things]))
        for scenario in chosen:
            if scenario.breaks_things:
                run_one(scenario)
    show(chosen, results)
    failures = sum(bool(problem) for _, problem in results.values())
    skipped = len(SCENARIOS) - len(chosen)
    print(f"{len(chosen) - failures} ok, {failures} failed, {skipped} not run")
    if not failures:
        shutil.rmtree(folder)
    return 1 if failures else 0


def can_run(scenario: Scenario, toolchains: Toolchains) -> bool:
    """Whether every client of a scenario is here."""
    return all(client in toolchains for client in scenario.clients)


def run(
    scenario: Scenario, cluster: LocalCluster, toolchains: Toolchains, folder: Path
) -> tuple[float, str]:
    """Run one scenario on a topic of its own; its seconds, and what went wrong."""
    topic = f"scenario-{SCENARIOS.index(scenario)}"
    place = Place(cluster, toolchains, folder / topic, topic)
    place.folder.mkdir()
    began = time.monotonic()
    problem = ""
    try:
        cluster.command("topic", "create", topic, "--queues", str(QUEUES))
        scenario.run(place)
    except Failed as error:
        problem = str(error)
    return time.monotonic() - began, problem


def show(chosen: list[Scenario], results: dict[str, tuple[float, str]]) -> None:
    """Print the table."""
    table = Table("scenario", "seconds", "outcome")
    for scenario in chosen:
        seconds, problem = results[scenario.name]
        table.add_row(scenario.name, f"{seconds:.1f}", problem or "ok")
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
