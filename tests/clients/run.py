"""Drive clients written by others against a real group: `make clients`.

Needs the registries of Python, npm, Maven, Go and Rust the first time. Exits 0 if every scenario
ended well. A client that cannot be installed is left out, and the last lines say so. Each argument
that is given must be in the name of a scenario that runs.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.clients.client_script import Failed
from tests.clients.grpc_scenarios import GRPC_SCENARIOS
from tests.clients.grpc_toolchains import GRPC_INSTALLERS, GRPC_TITLES
from tests.clients.java_process import JavaProcesses
from tests.clients.local_cluster import UP, LocalCluster
from tests.clients.local_proxy import Reach, SharedProxy
from tests.clients.scenarios import SCENARIOS, Place, Scenario
from tests.clients.toolchains import INSTALLERS, TITLES, Client, Toolchains, install

BUILD = Path(__file__).parents[2] / "build" / "clients"

# Scenarios wait for other people's timers most of the time, but a start of Java takes a core for
# two seconds.
PROCESSES_AT_ONCE = 3
IN_JAVA_AT_ONCE = 6

ALL = (*GRPC_SCENARIOS, *SCENARIOS)
ALL_TITLES = TITLES | GRPC_TITLES


class Result(NamedTuple):
    """How a scenario ended: what it saw, or why it failed."""

    seconds: float
    is_ok: bool
    text: str


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    asked = [one for one in ALL if all(word in one.name for word in arguments)]
    needed = {client for one in asked for client in one.clients}
    installers = INSTALLERS | GRPC_INSTALLERS
    toolchains, missing = install(
        BUILD, {client: one for client, one in installers.items() if client in needed}
    )
    chosen = [one for one in asked if all(client in toolchains for client in one.clients)]
    results = run_all(chosen, toolchains) if chosen else {}
    failures = sum(not result.is_ok for result in results.values())
    for client, why in missing.items():
        tell_of_missing(client, why, asked)
    print(
        f"{len(chosen) - failures} ok, {failures} failed, {len(asked) - len(chosen)} not run, "
        f"in {time.monotonic() - began:.0f} s"
    )
    return 1 if failures or not chosen else 0


Reaching = Callable[[LocalCluster, Path], Reach]


def plainly(_cluster: LocalCluster, _folder: Path) -> Reach:
    """Without TLS, and without users."""
    return Reach()


def run_all(
    chosen: Sequence[Scenario],
    toolchains: Toolchains,
    up: str = UP,
    reaching: Reaching = plainly,
) -> dict[str, Result]:
    """Run scenarios on one group, and print a table of them; their results by name.

    The files of the run stay if one failed.

    Args:
        chosen: the scenarios.
        toolchains: the clients.
        up: the command that starts the group, as `UP`.
        reaching: says how clients reach proxies, once there is a group.
    """
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=BUILD))
    print(f"{len(chosen)} scenarios; files of this run: {folder}", flush=True)
    results: dict[str, Result] = {}
    with (
        LocalCluster(folder, up) as cluster,
        JavaProcesses(toolchains, folder, cluster.names) as java,
        SharedProxy(folder, cluster.names, reaching(cluster, folder)) as proxy,
    ):

        def run_one(scenario: Scenario) -> None:
            topic = f"scenario-{chosen.index(scenario)}"
            place = Place(cluster, toolchains, java, proxy, folder / topic, topic)
            place.folder.mkdir()
            result = results[scenario.name] = run(scenario, place)
            verdict = "ok" if result.is_ok else "FAILED"
            print(f"{verdict}: {scenario.name} ({result.seconds:.1f} s) {result.text}", flush=True)

        together = [one for one in chosen if not one.breaks_things]
        with (
            ThreadPoolExecutor(PROCESSES_AT_ONCE) as costly,
            ThreadPoolExecutor(IN_JAVA_AT_ONCE) as cheap,
            ThreadPoolExecutor(len(chosen)) as waiting,
        ):
            for scenario in together:
                pool = costly if scenario.starts_processes else cheap
                (waiting if scenario.waits else pool).submit(run_one, scenario)
        for scenario in chosen:
            if scenario.breaks_things:
                run_one(scenario)
    show(chosen, results)
    if all(result.is_ok for result in results.values()):
        shutil.rmtree(folder)
    return results


def run(scenario: Scenario, place: Place) -> Result:
    """Run one scenario at its place."""
    began = time.monotonic()
    try:
        text, is_ok = scenario.run(place) or "every key came as it should", True
    except Failed as error:
        text, is_ok = str(error), False
    except Exception as error:  # the others run on
        text, is_ok = repr(error), False
    return Result(time.monotonic() - began, is_ok, text)


def show(chosen: Sequence[Scenario], results: dict[str, Result]) -> None:
    """Print the table."""
    table = Table("scenario", "seconds", "outcome")
    for scenario in chosen:
        seconds, is_ok, text = results[scenario.name]
        table.add_row(scenario.name, f"{seconds:.1f}", f"{'ok' if is_ok else 'FAILED'}: {text}")
    Console().print(table)


def tell_of_missing(client: Client, why: str, asked: Sequence[Scenario]) -> None:
    """Say which client is not here, why, and how many scenarios were left out."""
    count = sum(client in scenario.clients for scenario in asked)
    print(f"not run: {count} scenarios with {ALL_TITLES[client]}, which is not here: {why}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
