"""Makes the runs of a suite, each as a process of its own, one after another."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import trio

from jepsen_like.chaos.plan import CLIENT_DEFAULT, typed
from jepsen_like.chaos.suites.catalogue import Planned
from jepsen_like.chaos.suites.made_run import MadeRun, finished_run
from jepsen_like.chaos.suites.suite_folder import SuiteFolder, SuitePlan

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Series:
    """The runs of a suite; `begins` and `ended` are called with each."""

    folder: SuiteFolder
    plan: SuitePlan
    begins: Callable[[Planned], None]
    ended: Callable[[MadeRun], None]
    runs: list[MadeRun] = field(default_factory=list)
    stopped: bool = False
    _process: trio.Process | None = None

    async def make(self, planned: Iterable[Planned], until_s: float) -> None:
        """Make the runs that are not finished yet; none begins from `until_s` of trio's clock on.

        The first signal ends the faults of the present run, and no further one begins; a second one
        ends that run at once.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._hear_signals)
            for each in planned:
                made = finished_run(self.folder.path / each.name, each, self.plan.time_s)
                if made is None:
                    if self.stopped or trio.current_time() >= until_s:
                        break
                    self.begins(each)
                    made = await self._make(each)
                self.runs.append(made)
                self.ended(made)
                if self.stopped:
                    break
            nursery.cancel_scope.cancel()

    async def _make(self, planned: Planned) -> MadeRun:
        command = self.command(planned, str(self.folder.room_for(planned)))
        with (self.folder.path / f"{planned.name}.txt").open("wb") as output:
            # A process group of its own: Ctrl-C in a terminal reaches it by way of the suite.
            self._process = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
            await self._process.wait()
            self._process = None
        return await trio.to_thread.run_sync(self.folder.ended, planned)

    def command(self, planned: Planned, out: str) -> list[str]:
        row, plan = planned.row, self.plan
        words = ["--workload", row.workload, "--nemesis", row.nemeses, "--nodes", str(row.nodes)]
        words += ["--time", typed(plan.time_s), "--seed", str(planned.seed)]
        words += ["--network", plan.network, "--out", out, *["--lease"] * row.lease]
        words += ["--grown"] * row.grown
        words += ["--client", row.client] * (row.client != CLIENT_DEFAULT)
        return [sys.executable, "-m", "jepsen_like", "run", *words]

    async def _hear_signals(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(*ENDING_SIGNALS) as signals:
            task_status.started()
            async for _ in signals:
                self.stopped = True
                if self._process is not None:
                    self._process.send_signal(signal.SIGINT)
