"""The trace of a message, put together from the records that clients wrote."""

from collections.abc import Iterable
from dataclasses import replace

from dledger_mq.received_message import ReceivedMessage
from remoting.bodies.trace import TraceRecord, decode_trace


def trace_of(message_id: str, messages: Iterable[ReceivedMessage]) -> list[TraceRecord]:
    """Return the steps of one message, the earliest first; each once.

    `messages` are messages of the trace topic, the oldest first.
    """
    records = [record for one in messages for record in decode_trace(one.body)]
    steps = list({_key(step): step for step in records if step.message_id == message_id}.values())
    began = {step.request: step for step in steps if step.kind == "SubBefore"}
    placed = [_placed(step, began) for step in steps]
    placed.sort(key=lambda step: step.at_ms)
    return placed


def _key(step: TraceRecord) -> object:
    """Return a key that is equal for the records of one step: clients may send them twice."""
    return step.kind, step.at_ms, step.group, step.request, tuple(step.details.items())


def _placed(step: TraceRecord, began: dict[str, TraceRecord]) -> TraceRecord:
    """Return a step with its time and group, which the end of a listener's call may lack."""
    before = began.get(step.request)
    if step.kind != "SubAfter" or before is None:
        return step
    at_ms = before.at_ms + (step.cost_ms or 0)
    return replace(step, at_ms=step.at_ms or at_ms, group=step.group or before.group)
