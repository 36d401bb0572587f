"""Looks for a mistake in a service by chaos on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from dledger.declared_error import DeclaredError
from jepsen_like.chaos.dirty import shown_by
from jepsen_like.chaos.watcher.watched import watched
from jepsen_like.mutants.mutant import Mutant
from jepsen_like.report.told_run import RunExit
from jepsen_like.trials.trial import Found, Trial, search

# A run of this length finds each; the budget allows for its check, and for slow machines.
RUN_S = 60
RUN_TIMEOUT_S = 300
FIRST_SEED = 1


class TrialFailed(DeclaredError):
    """A run could not be made. Its text says why."""

    problem: str


def chaos_trial(mutant: Mutant, budget_s: float) -> Trial:
    """Run a service, or brokers, with a mistake until the checker finds it, or time is over.

    Raises TrialFailed.
    """
    return search(mutant, FIRST_SEED, budget_s, lambda seed: _violation(mutant, seed))


def _violation(mutant: Mutant, seed: int) -> Found | None:
    """Return the finding of a run of a seed; None without one. Raises TrialFailed."""
    name = mutant.name
    with tempfile.TemporaryDirectory(prefix="jepsen-like-mutant-") as folder:
        out = Path(folder) / "run"
        command = [
            *(sys.executable, "-m", "jepsen_like", "run", *shown_by(mutant)),
            *("--seed", str(seed), "--time", str(RUN_S), "--out", str(out)),
        ]
        try:
            with watched():
                ended = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    timeout=RUN_TIMEOUT_S,
                    check=False,
                )
        except subprocess.TimeoutExpired as error:
            raise TrialFailed(f"{name}: no end after {RUN_TIMEOUT_S} s") from error
        if ended.returncode == RunExit.VIOLATION:
            told = json.loads((out / "run.json").read_text(encoding="utf-8"))
            return Found(str(told["reason"]))
        if ended.returncode in (RunExit.NOTHING_FOUND, RunExit.UNDECIDED):
            return None
        last = (ended.stderr.strip() or ended.stdout.strip()).rpartition("\n")[2]
        raise TrialFailed(f"{name}: the run ended with {ended.returncode}: {last}")
