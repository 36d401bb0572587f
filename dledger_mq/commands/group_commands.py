"""`dledger-mq group ...`: show consumer groups, reset them, and set how they read."""

import json
import re
import sys
from datetime import datetime
from typing import Final

import click

from dledger.command_line.ending import CommandFailed, ExitCode
from dledger.command_line.options import flag, option
from dledger.command_line.rows import say
from dledger.command_line.standard_streams import say_done, telling_what_is_done
from dledger.shown_output import shown_on
from dledger_mq.admin.admin import Admin
from dledger_mq.admin.consumer_group import DEFAULT_RETRIES
from dledger_mq.commands.command_line import (
    COMMAND_ERRORS,
    ask,
    change,
    lines_option,
    nameserver_option,
    print_rows,
    written_time,
)
from dledger_mq.connection.this_process import now_ms
from remoting.bodies.assignment import POP, PULL, RequestMode
from remoting.bodies.message_queue import MessageQueue

_MAX_OFFSET: Final = (1 << 63) - 1

_AGO: Final = re.compile(r"(\d{1,9})(s|m|h|d)", re.ASCII)
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

# A number with this many digits is a time in milliseconds since 1970.
_MILLISECOND_DIGITS: Final = 13

FORMS: Final = "2026-03-01T12:30 (local time), 2026-03-01T12:30+00:00, 90m (ago; s, m, h, d) or ms"


@click.group("group")
def group_commands() -> None:
    """Make consumer groups, look at them, and move them."""


@group_commands.command("create")
@click.argument("group")
@flag("--in-order", "Clients of gRPC get each queue's messages one after another.")
@option(
    "--retries",
    "Redeliveries of a message before it is a dead letter.",
    type=click.IntRange(0),
    default=DEFAULT_RETRIES,
)
@option("--lite-topic", "The topic whose lite topics the group reads.", metavar="TOPIC")
@option(
    "--attribute",
    "attributes",
    "A further setting of RocketMQ 5, such as lite.sub.model=Exclusive. May be repeated.",
    multiple=True,
    metavar="NAME=VALUE",
)
@nameserver_option
def create(
    group: str,
    in_order: bool,
    retries: int,
    lite_topic: str | None,
    attributes: tuple[str, ...],
) -> None:
    """Make GROUP, or change it. Groups that need none of this make themselves."""
    found: dict[str, str] = {} if lite_topic is None else {"lite.bind.topic": lite_topic}
    for text in attributes:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r}: give NAME=VALUE", param_hint="--attribute")
        found[name] = value
    change(
        lambda admin: admin.group(group).create(
            in_order=in_order, most_retries=retries, attributes=found
        )
    )
    say_done(f"group {group} is made")


@group_commands.command("progress")
@click.argument("group")
@option("--topic", "Only this topic.", default="", show_default=False)
@lines_option
@nameserver_option
def progress(group: str, topic: str, as_json: bool) -> None:
    """Show how far GROUP is, queue by queue: the end, what is consumed, and the lag."""
    found = ask(lambda admin: admin.group(group).progress(topic))
    rows = [
        {
            "topic": row.queue.topic,
            "broker": row.queue.broker_name,
            "queue": row.queue.queue_id,
            "end": row.broker_offset,
            "consumed": row.consumer_offset,
            "pulled": row.pulled_offset,
            "lag": row.lag,
            "last": written_time(row.last_timestamp),
        }
        for row in found
    ]
    columns = ("topic", "broker", "queue", "end", "consumed", "pulled", "lag", "last")
    print_rows(columns, rows, as_json)
    if not found:
        raise CommandFailed(f"group {group} has consumed nothing: see that its name is right")
    if sys.stdout.isatty() and not as_json:
        click.echo(f"lag of all queues: {sum(row.lag for row in found)}")


@group_commands.command("consumers")
@click.argument("group")
@lines_option
@nameserver_option
def consumers(group: str, as_json: bool) -> None:
    """Show the present members of GROUP, and what they subscribe to."""
    found = ask(lambda admin: admin.group(group).connections())
    if found is None:
        raise CommandFailed(f"group {group} has no member now")
    rows = [
        {
            "client id": one.client_id,
            "address": one.address,
            "language": one.language,
            "version": one.version,
            "model": found.model,
            "from": found.consume_from,
            "subscriptions": " ".join(
                f"{topic}={wanted}" for topic, wanted in sorted(found.subscriptions.items())
            ),
        }
        for one in found.consumers
    ]
    columns = ("client id", "address", "language", "version", "model", "subscriptions")
    print_rows(columns, rows, as_json)
    for alike in found.different:
        wanted = " ".join(f"{topic}={text}" for topic, text in alike.subscriptions.items())
        line = (
            f"dledger-mq: members differ, so that messages are missed: {alike.members}, such as "
            f"{' '.join(alike.client_ids[:3])}, subscribe to {wanted or 'nothing'}"
        )
        click.echo(shown_on(sys.stderr, line), err=True)


@group_commands.command("running")
@click.argument("group")
@click.argument("client_id")
@nameserver_option
def running(group: str, client_id: str) -> None:
    """Print what the member CLIENT_ID of GROUP says of itself, as JSON.

    `dledger-mq group consumers` lists the ids.
    """
    found = ask(lambda admin: admin.group(group).running_info(client_id))
    say(json.dumps(dict(found), indent=2 if sys.stdout.isatty() else None))


@group_commands.command("consume")
@click.argument("group")
@click.argument("client_id")
@click.argument("offset_message_id")
@lines_option
@nameserver_option
def consume(group: str, client_id: str, offset_message_id: str, as_json: bool) -> None:
    """Have the member CLIENT_ID of GROUP consume a stored message, to see what it does.

    `dledger-mq find --json` tells the OFFSET_MESSAGE_ID. Nothing is committed, and the message
    stays where it is. The exit code is 1 if the listener did not succeed.
    """
    found = change(lambda admin: admin.group(group).consume_directly(client_id, offset_message_id))
    row = {
        "result": found.result,
        "ms": found.took_ms,
        "remark": found.remark,
    }
    with telling_what_is_done(f"the member was asked ({found.result})"):
        print_rows(("result", "ms", "remark"), [row], as_json)
    if not found.is_consumed:
        sys.exit(ExitCode.FAILED)


@group_commands.command("status")
@click.argument("group")
@click.argument("topic")
@lines_option
@nameserver_option
def status(group: str, topic: str, as_json: bool) -> None:
    """Show where each member of GROUP is in its queues of TOPIC, as it says itself."""
    found = ask(lambda admin: admin.group(group).consume_status(topic))
    rows = [
        {
            "client id": client_id,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "next": offset,
        }
        for client_id, queues in sorted(found.items())
        for queue, offset in sorted(queues.items())
    ]
    print_rows(("client id", "broker", "queue", "next"), rows, as_json)


@group_commands.command("waiting")
@click.argument("group")
@click.argument("topic")
@lines_option
@nameserver_option
def waiting(group: str, topic: str, as_json: bool) -> None:
    """Show how long the next message of GROUP has waited, in each queue of TOPIC."""
    found = ask(lambda admin: admin.group(group).time_spans(topic))
    rows = [
        {
            "broker": span.queue.broker_name,
            "queue": span.queue.queue_id,
            "first": written_time(span.first_timestamp),
            "last": written_time(span.last_timestamp),
            "consumed": written_time(span.consumed_timestamp),
            "waits ms": span.waiting_ms,
        }
        for span in found
    ]
    print_rows(("broker", "queue", "first", "last", "consumed", "waits ms"), rows, as_json)


@group_commands.command("reset")
@click.argument("group")
@click.argument("topic")
@option("--to-time", "time", f"To the first message of a time: {FORMS}.")
@flag("--to-first", "To the first message that is kept.")
@flag("--to-last", "Behind the last message: skip all.")
@option(
    "--to-offset",
    "offset",
    "To this offset of the queue that --queue names.",
    type=click.IntRange(0, _MAX_OFFSET),
)
@option("--queue", "queue_name", "Only this queue; see progress.", metavar="BROKER:ID")
@flag("--only-back", "With --to-time: move no queue forward.")
@lines_option
@nameserver_option
def reset(
    group: str,
    topic: str,
    time: str | None,
    to_first: bool,
    to_last: bool,
    offset: int | None,
    queue_name: str | None,
    only_back: bool,
    as_json: bool,
) -> None:
    """Move GROUP in TOPIC, whether it has members or not.

    \b
    dledger-mq group reset billing Orders --to-time 90m
    dledger-mq group reset billing Orders --to-time 2026-03-01T12:30 --only-back
    dledger-mq group reset billing Orders --to-first
    dledger-mq group reset billing Orders --to-last
    dledger-mq group reset billing Orders --to-offset 120 --queue broker-a:0

    Members learn of it by their next pull, within moments. Messages that they work on are not
    taken from them. docs/resets.md has more.
    """  # noqa: D301 - click's mark, a backspace
    ways = (time is not None, to_first, to_last, offset is not None)
    if sum(ways) != 1:
        raise click.UsageError("give one of --to-time, --to-first, --to-last and --to-offset")
    if (offset is None) != (queue_name is None):
        raise click.UsageError("--to-offset and --queue go together: offsets differ by queue")
    if only_back and time is None:
        raise click.UsageError("--only-back goes with --to-time")
    queue = None if queue_name is None else _queue(topic, queue_name)
    at_ms = 0
    if time is not None:
        try:
            at_ms = read_time(time, now_ms())
        except ValueError as error:
            raise click.UsageError(f"--to-time: {error}") from None

    async def moved(admin: Admin) -> dict[MessageQueue, int]:
        of = admin.group(group)
        if queue is not None and offset is not None:
            await of.reset_to_offset(queue, offset)
            return {queue: offset}
        if to_last:
            return await of.skip_all(topic)
        return await of.reset_to_time(topic, at_ms, only_back=only_back)

    rows = [
        {"broker": one.broker_name, "queue": one.queue_id, "next": moved_to}
        for one, moved_to in change(moved).items()
    ]
    with telling_what_is_done(f"group {group} is moved"):
        print_rows(("broker", "queue", "next"), rows, as_json)


@group_commands.command("clone")
@click.argument("group")
@click.argument("target")
@option("--topic", "Only in this topic.", default="", show_default=False)
@nameserver_option
def clone(group: str, target: str, topic: str) -> None:
    """Let the group TARGET go on where GROUP is.

    TARGET should have no members now: what they commit next would count.
    """
    change(lambda admin: admin.group(group).clone_to(target, topic))
    say_done(f"group {target} goes on where {group} is{f' in {topic}' if topic else ''}")


def _queue(topic: str, name: str) -> MessageQueue:
    broker_name, separator, number = name.rpartition(":")
    if not separator or not broker_name or not number.isdecimal() or len(number) > 9:
        raise click.UsageError(f"--queue {name}: give the broker's name and a number, broker-a:0")
    return MessageQueue(topic, broker_name, int(number))


# The most that brokers accept; a number above the number of members means all of them.
_MAX_SHARES: Final = 1_000_000


@group_commands.command("mode")
@click.argument("group", default="")
@click.argument("topic", default="")
@flag("--pop", "Set that members of GROUP pop from TOPIC.")
@flag("--pull", "Set that they pull, as they do when nothing is set.")
@option(
    "--shares",
    "With --pop: with how many others a member shares its queues; 0, the default, is all.",
    type=click.IntRange(0, _MAX_SHARES),
    metavar="MEMBERS",
)
@lines_option
@nameserver_option
def mode(
    group: str,
    topic: str,
    pop: bool,
    pull: bool,
    shares: int | None,
    as_json: bool,
) -> None:
    """Show how groups read topics as it was set, or set it for GROUP in TOPIC.

    \b
    dledger-mq group mode
    dledger-mq group mode billing
    dledger-mq group mode billing Orders --pop --shares 2
    dledger-mq group mode billing Orders --pull

    It concerns consumers that ask brokers for their queues. docs/pop.md has more.
    """  # noqa: D301 - click's mark, a backspace
    if pop and pull:
        raise click.UsageError("give one of --pop and --pull")
    if (pop or pull) and not topic:
        raise click.UsageError("give GROUP and TOPIC with --pop and --pull")
    if shares is not None and not pop:
        raise click.UsageError("--shares goes with --pop")

    if not (pop or pull):
        _show_modes(group, topic, as_json)
        return
    wanted = RequestMode(topic, group, POP if pop else PULL, shares or 0)
    change(lambda admin: admin.set_request_mode(wanted))
    with telling_what_is_done("the mode is set", expected=COMMAND_ERRORS):
        _show_modes(group, topic, as_json)


def _show_modes(group: str, topic: str, as_json: bool) -> None:
    rows = [
        {"group": one.group, "topic": one.topic, "mode": one.mode, "shares": one.shares}
        for one in ask(lambda admin: admin.request_modes())
        if group in ("", one.group) and topic in ("", one.topic)
    ]
    print_rows(("group", "topic", "mode", "shares"), rows, as_json)


def read_time(text: str, now_ms: int) -> int:
    """Return a time in milliseconds since 1970. Raises ValueError, which lists the forms."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    if text.isdecimal() and len(text) == _MILLISECOND_DIGITS:
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r:.60} is no time: give {FORMS}") from None
