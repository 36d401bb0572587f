"""The folder of a suite: its plan, its runs, and their results."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.suites.catalogue import Planned
from jepsen_like.chaos.suites.made_run import MadeRun, made_run
from jepsen_like.chaos.whole_file import write_whole

SUITE_FORMAT = 1
SUITE_FILE = "suite.json"


class OtherSuite(DeclaredError):
    """A folder holds runs of another plan. Its text says which."""

    problem: str


@dataclass(frozen=True)
class SuitePlan:
    """The arguments of a suite, whose first run has this seed."""

    suites: tuple[str, ...]
    seed: int
    time_s: float
    network: str = "auto"


class SuiteFolder:
    """The folder of a suite, which may exist with runs of the same plan."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def begun_plan(self) -> SuitePlan | None:
        """Return the plan of the runs in the folder; None if there are none. Raises OtherSuite."""
        try:
            text = (self.path / SUITE_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            plan = json.loads(text)["plan"]
            return SuitePlan(**{**plan, "suites": tuple(plan["suites"])})
        except (ValueError, LookupError, TypeError) as error:
            raise OtherSuite(f"{self.path / SUITE_FILE} has no plan of a suite") from error

    def begin(self, plan: SuitePlan) -> None:
        """Make the folder, or continue in it. Raises OtherSuite."""
        begun = self.begun_plan()
        if begun is None and self.path.exists() and any(self.path.iterdir()):
            raise OtherSuite(f"{self.path} holds something else than a suite")
        if begun is not None and begun != plan:
            raise OtherSuite(
                f"{self.path} holds runs of {', '.join(begun.suites)} with seed {begun.seed}, "
                f"{begun.time_s:g} s and network {begun.network}"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self.write(plan, ())

    def write(self, plan: SuitePlan, runs: Iterable[MadeRun]) -> None:
        """Write suite.json, whole or not at all."""
        told = [run._asdict() | {"worst": run.worst and run.worst._asdict()} for run in runs]
        content = {"suite_format": SUITE_FORMAT, "plan": asdict(plan), "runs": told}
        write_whole(self.path / SUITE_FILE, json.dumps(content, indent=1) + "\n")

    def ended(self, planned: Planned) -> MadeRun:
        """Return the result of a run that has just ended.

        The data of its members is removed if nothing was found: 50 to 400 MB of each run would fill
        the disk in some hours. Blocks.
        """
        made = made_run(self.path / planned.name, planned)
        if made.exit_code == 0:
            shutil.rmtree(self.path / planned.name / "data", ignore_errors=True)
        return made

    def room_for(self, planned: Planned) -> Path:
        """Return a path for a run; an unfinished run there is set aside, as it may show a fault."""
        place = self.path / planned.name
        if place.exists():
            asides = (Path(f"{place}-aside-{number}") for number in count(1))
            os.rename(place, next(aside for aside in asides if not aside.exists()))
        return place
