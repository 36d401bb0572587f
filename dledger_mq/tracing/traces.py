"""The trace of a message: what clients told about it, in the order in which it happened."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.trace import TraceRecord, decode_trace

# Where clients write by default.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def trace_of(message_id: str, told: Iterable[ReceivedMessage]) -> list[TraceRecord]:
    """The steps of one message, the earliest first; each once.

    Args:
        message_id: the id that the producer gave it.
        told: messages of the trace topic, the oldest first.
    """
    records = [record for one in told for record in decode_trace(one.body)]
    steps = list({_key(step): step for step in records if step.message_id == message_id}.values())
    began = {step.request: step for step in steps if step.kind == "SubBefore"}
    placed = [_placed(step, began) for step in steps]
    placed.sort(key=lambda step: step.at_ms)
    return placed


def _key(step: TraceRecord) -> object:
    """Equal for the records of one step: a client may send a trace message twice."""
    return step.kind, step.at_ms, step.group, step.request, tuple(step.details.items())


def _placed(step: TraceRecord, began: dict[str, TraceRecord]) -> TraceRecord:
    """A step with its time and group; the end of a listener's call tells neither, or both."""
    before = began.get(step.request)
    if step.kind != "SubAfter" or before is None:
        return step
    at_ms = before.at_ms + (step.cost_ms or 0)
    return replace(step, at_ms=step.at_ms or at_ms, group=step.group or before.group)
