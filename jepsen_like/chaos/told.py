"""A run as its report describes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jepsen_like.chaos.brokers.begun import DELIVERIES
from jepsen_like.chaos.gaps import ns_of
from jepsen_like.chaos.plan import RunPlan
from jepsen_like.chaos.run import RunResult
from jepsen_like.chaos.stages.brokers import EXPLANATIONS
from jepsen_like.chaos.verdict import RunVerdict
from jepsen_like.check_files import Checked as CheckedFile
from jepsen_like.history.operation import Operation
from jepsen_like.report.told_run import Checked, Death, Fault, Link, ToldRun

Event = Mapping[str, object]


def told_run(
    plan: RunPlan,
    command: str,
    result: RunResult,
    verdict: RunVerdict,
    operations: Sequence[Operation],
    versions: Mapping[str, str],
) -> ToldRun:
    nemeses = ", ".join(plan.nemeses) or "nothing"
    return ToldRun(
        title=f"{plan.service} on {plan.nodes} members, broken by {nemeses}",
        outcome=verdict.exit,
        reason=verdict.reason,
        command=command,
        facts=[
            ("seed", str(plan.seed)),
            ("seconds with faults", f"{plan.time_s:g}"),
            ("network", result.network),
            *versions.items(),
            *((f"found {number}", text) for number, text in enumerate(result.findings, 1)),
            *((f"doubt {number}", text) for number, text in enumerate(verdict.doubts, 1)),
        ],
        operations=operations,
        checks=[*_checked(verdict.checked), *_checked(verdict.statistics)],
        faults=list(faults_of(result.events)),
        deaths=list(deaths_of(result.events)),
        gaps=verdict.gaps,
        left_out=[*result.left_out, *skipped_of(result.events)],
        links=[Link(name, name) for name in ("run.json", "history.jsonl", "faults.jsonl")]
        + [Link("logs of the members", "members/")],
        deliveries=DELIVERIES if plan.service in EXPLANATIONS else (),
    )


def _checked(checked: CheckedFile | None) -> Iterable[Checked]:
    if checked is not None and checked.report is not None:
        yield Checked(str(checked.model), checked.report)


def faults_of(events: Iterable[Event]) -> Iterable[Fault]:
    """Yield the faults, in the order in which they began."""
    found = list(events)
    ends = {event["fault"]: ns_of(event) for event in found if event["event"] == "end"}
    begins = sorted((event for event in found if event["event"] == "begin"), key=ns_of)
    for event in begins:
        targets = event["targets"]
        assert isinstance(targets, list)
        yield Fault(str(event["kind"]), ", ".join(targets), ns_of(event), ends.get(event["fault"]))


def deaths_of(events: Iterable[Event]) -> Iterable[Death]:
    for event in events:
        if event["event"] != "down":
            continue
        expected = bool(event["expected"])
        done = "started again" if expected else str(event.get("done", "started again"))
        words = str(event.get("last_words", f"exit code {event['exit_code']}"))
        yield Death(str(event["member"]), ns_of(event), words, done, expected)


def skipped_of(events: Iterable[Event]) -> list[str]:
    """Return why faults were left out, each reason once."""
    reasons = {
        f"{event['kind']}: {event['reason']}" for event in events if event["event"] == "skipped"
    }
    return sorted(reasons)
