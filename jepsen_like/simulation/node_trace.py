"""The lines of a trace: the inputs of a member, and its state afterwards."""

from __future__ import annotations

from dledger.core.messages import Message
from dledger.core.replica import Replica
from jepsen_like.simulation.node_process import Arrivals


def arrival_lines(arrivals: Arrivals) -> list[str]:
    lines = [f"<- {sender} {describe(message)}" for sender, message in arrivals.messages]
    lines += [f"asked to append {numbers[0]}..{numbers[-1]}" for numbers, _ in arrivals.appends]
    lines += [f"asked to read {ticket}" for ticket in arrivals.reads]
    lines += [f"asked to hand over to {target or 'any member'}" for target in arrivals.transfers]
    lines += [f"asked to change {call}" for call in arrivals.changes]
    if arrivals.forgets:
        lines.append("asked to forget its leader")
    return lines


def state_line(replica: Replica) -> str:
    state = replica.state
    return (
        f"{state.role.name} t{state.term} vote={state.voted_for} end={replica.view.last_index} "
        f"dur={state.durable} com={state.committed} app={state.applied} "
        f"group={state.membership.index}"
        f"{'' if state.proven else ' unproven'}"
    )


def describe(message: Message) -> str:
    """Return one line for a message, without the bytes it carries."""
    fields = [
        f"{name}={value.name if hasattr(value, 'name') else value}"
        for name, value in message._asdict().items()
        if name not in ("payload", "facts", "changes")
    ]
    return f"{type(message).__name__}({' '.join(fields)})"
