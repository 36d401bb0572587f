"""The report of a checker on a history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# Examples reported of one kind of problem. A screen has room for about so many.
EXAMPLES_MAX = 32


class Verdict(StrEnum):
    """Whether the promise was kept."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"  # the history does not tell, or the search was given up


@dataclass(frozen=True)
class Problem:
    """One broken rule: its kind, a sentence, and the lines that show it."""

    kind: str
    how: str
    lines: tuple[int, ...] = ()


@dataclass(frozen=True)
class Report:
    """The verdict and its reasons.

    `summary` is one line. `problems` are examples, at most `EXAMPLES_MAX` of a kind; those that
    count come first. `counts` has how many there are of each kind. `allowed` are kinds that were
    found and did not count.

    `figures` are numbers for a program; `text` are lines for people, shown below the verdict.
    """

    verdict: Verdict
    summary: str
    problems: Sequence[Problem] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    allowed: Collection[str] = ()
    figures: Mapping[str, object] = field(default_factory=dict)
    text: Sequence[str] = ()


class Findings:
    """Collects examples of problems, and counts all; those of `allowed` kinds do not count."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._allowed = allowed
        self._counts: Counter[str] = Counter()
        self._problems: list[Problem] = []

    def add(self, kind: str, how: str, *lines: int | None) -> None:
        """Note a problem, and the lines that show it; a line that is None is unknown."""
        self._counts[kind] += 1
        if self._counts[kind] <= EXAMPLES_MAX:
            there = tuple(line for line in lines if line is not None)
            self._problems.append(Problem(kind, how, there))

    def include(self, report: Report, words: str = "") -> None:
        """Take the problems of another report, told behind some words."""
        for problem in report.problems:
            self.add(problem.kind, words + problem.how, *problem.lines)
        told = Counter(problem.kind for problem in report.problems)
        for kind, number in report.counts.items():
            self._counts[kind] += number - told[kind]  # it has some of its problems alone

    def report(
        self,
        summary: str,
        unknown: str | None = None,
        figures: Mapping[str, object] | None = None,
        text: Sequence[str] = (),
    ) -> Report:
        """Return the report of the findings.

        `summary` is for a history without problems. `unknown` says why the verdict is unknown
        unless a problem was found.
        """
        counted = {kind: n for kind, n in self._counts.items() if kind not in self._allowed}
        verdict = Verdict.VALID
        if counted:
            verdict = Verdict.INVALID
            summary = ", ".join(f"{n} {kind}" for kind, n in counted.items()) + f"; {summary}"
        elif unknown is not None:
            verdict = Verdict.UNKNOWN
            summary = f"{unknown}; {summary}"
        allowed = sorted(self._counts.keys() - counted.keys())
        problems = sorted(self._problems, key=lambda problem: problem.kind in self._allowed)
        return Report(verdict, summary, problems, dict(self._counts), allowed, figures or {}, text)
