"""The known mistakes that runs of real processes must find: the names that `--dirty` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jepsen_like.chaos.stages.brokers import EXPLANATIONS
from jepsen_like.mutants.mutant import Mutant, all_mutants

_DIRTY = [mutant for mutant in all_mutants().values() if mutant.workload is not None]
DIRTY_BROKERS: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant for mutant in _DIRTY if mutant.workload in EXPLANATIONS
}
DIRTY_SERVICES: Final[Mapping[str, Mutant]] = {
    mutant.name: mutant for mutant in _DIRTY if mutant.workload not in EXPLANATIONS
}


def shown_by(mutant: Mutant) -> list[str]:
    """Return the arguments of a run that shows a mistake: workload, nemesis, and the name."""
    assert mutant.workload is not None
    nemesis = [] if mutant.nemesis is None else ["--nemesis", mutant.nemesis]
    return ["--workload", mutant.workload, *nemesis, "--dirty", mutant.name]
