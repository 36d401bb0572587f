"""Writes a failing schedule as a test to paste."""

from __future__ import annotations

import re
import textwrap

from jepsen_like.chaos.service import Call
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.service.schedule import LEADER, Do, Schedule, Step

# Lines of the comment are cut to this.
LINE_CHARACTERS = 90


def pasted_test(name: str, schedule: Schedule, failure: Failure) -> str:
    """Return a test that fails as the schedule of a service does; it is named `module:Machine`."""
    module, _, path = name.partition(":")
    top = path.partition(".")[0]
    words = re.sub(r"[^a-z0-9]+", "_", failure.promise.lower()).strip("_")
    calls = any(step.call is not None for step in schedule.steps)
    how = " ".join(failure.how.split())
    wrapped = textwrap.wrap(how, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False)
    lines = [
        "import jepsen_like",
        f"from jepsen_like import {'Call, ' if calls else ''}Schedule, Step",
        f"from {module} import {top}",
        "",
        "",
        f"def test_{words}() -> None:",
        *(f"    # {line}" for line in wrapped),
        "    schedule = Schedule(",
        f"        seed={schedule.seed},",
        f"        nodes={schedule.nodes},",
        f"        length_s={schedule.length_s!r},",
        "        steps=[",
        *(f"            {_written(step)}," for step in schedule.steps),
        "        ],",
        "    )",
        f"    jepsen_like.run_schedule({path}, schedule)",
        "",
    ]
    return "\n".join(lines)


def _written(step: Step) -> str:
    words = [repr(step.at_s), f'"{step.do}"']
    if step.member != LEADER:
        words.append(f'"{step.member}"')
    if step.for_s:
        words.append(f"for_s={step.for_s!r}")
    if step.call is not None:
        words.append(f"call={_written_call(step.call)}")
        words.append(f"client={step.client}")
    elif step.do == Do.TURN:
        words.append(f"client={step.client}")
    elif step.do == Do.APPEND:
        words.append(f"body={_quoted(step.body)}")
    return f"Step({', '.join(words)})"


def _written_call(call: Call) -> str:
    words = [_quoted(call.function), repr(call.key), repr(call.value)]
    if call.body is not None:
        words.append(_quoted(call.body))
    if call.is_read:
        words.append("is_read=True")
    return f"Call({', '.join(words)})"


def _quoted(value: str | bytes) -> str:
    """Return a literal in double quotes if possible, as formatters write it."""
    text = repr(value)
    return text if '"' in text else text.replace("'", '"')
