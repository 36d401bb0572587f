"""`dledger-mq group mode`: show and set how groups read topics."""

from typing import Final

import click

from dledger_mq.admin.admin import Admin
from dledger_mq.commands.command_line import ask, lines_option, nameserver_option, print_rows
from remoting.bodies.assignment import POP, PULL, RequestMode

# Brokers take no more; more than there are members means all of them.
_MAX_SHARES: Final = 1_000_000


@click.command("mode")
@click.argument("group", default="")
@click.argument("topic", default="")
@click.option("--pop", is_flag=True, help="Set that members of GROUP pop from TOPIC.")
@click.option("--pull", is_flag=True, help="Set that they pull, as they do when nothing is set.")
@click.option(
    "--shares",
    type=click.IntRange(0, _MAX_SHARES),
    metavar="MEMBERS",
    help="With --pop: with how many others a member shares its queues; 0, the default, is all.",
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

    async def modes(admin: Admin) -> list[RequestMode]:
        if pop or pull:
            wanted = RequestMode(topic, group, POP if pop else PULL, shares or 0)
            await admin.set_request_mode(wanted)
        return await admin.request_modes()

    rows = [
        {"group": one.group, "topic": one.topic, "mode": one.mode, "shares": one.shares}
        for one in ask(modes)
        if group in ("", one.group) and topic in ("", one.topic)
    ]
    print_rows(("group", "topic", "mode", "shares"), rows, as_json)
