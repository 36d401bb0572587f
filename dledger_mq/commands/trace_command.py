"""`dledger-mq trace`: what happened to a message."""

from datetime import UTC, datetime

import click

from dledger.command_line.ending import CommandFailed
from dledger_mq.commands.command_line import ask, lines_option, nameserver_option, print_rows
from dledger_mq.tracing.traces import TRACE_TOPIC
from remoting.bodies.trace import TraceRecord


@click.command("trace")
@click.argument("message_id")
@click.option(
    "--topic", default=TRACE_TOPIC, show_default=True, help="Where clients write their traces."
)
@lines_option
@nameserver_option
def trace(message_id: str, topic: str, as_json: bool) -> None:
    """Show who sent the message MESSAGE_ID and who consumed it, as clients told.

    MESSAGE_ID is the id that its send has printed. Clients tell only if they are set up to do so.
    The exit code is 1 if nobody has told of the message.
    """
    steps = ask(lambda admin: admin.trace(message_id, trace_topic=topic))
    columns = ("at", "step", "group", "topic", "ms", "succeeded", "details")
    print_rows(columns, [_row(step, as_json) for step in steps], as_json)
    if not steps:
        raise CommandFailed(
            f"no client has told of message {message_id} in {topic}: traces are switched on in "
            "clients, see docs/trace.md"
        )


def _row(step: TraceRecord, as_json: bool) -> dict[str, object]:
    row: dict[str, object] = {
        "at": step.at_ms if as_json else _time(step.at_ms),
        "step": step.kind,
        "group": step.group or None,
        "topic": step.topic or None,
        "ms": step.cost_ms,
        "succeeded": None if step.succeeded is None else step.succeeded,
    }
    details: object = dict(step.details)
    if not as_json:
        details = " ".join(f"{name}={value}" for name, value in step.details.items())
    return {**row, "details": details}


def _time(at_ms: int) -> str:
    """A time for people, or "-" when the client did not say one that a calendar has."""
    if not at_ms:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return "-"
