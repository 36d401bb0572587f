"""`dledger-mq settings`: show and change the settings of brokers."""

import click

from dledger_mq.admin.admin import Admin
from dledger_mq.commands.command_line import ask, lines_option, nameserver_option, print_rows


@click.command("settings")
@click.argument("changes", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--broker", "broker_name", default="", help="Only this group of brokers.")
@lines_option
@nameserver_option
def settings(changes: tuple[str, ...], broker_name: str, as_json: bool) -> None:
    """Show the settings of brokers, or change them while they run.

    \b
    dledger-mq settings
    dledger-mq settings fileReservedTime=48 'deleteWhen=04;16'
    dledger-mq settings fileReservedTime=           back to the command line's value

    All of a command are changed, or none. docs/settings.md lists what can be changed.
    """  # noqa: D301 - click's mark, a backspace
    values: dict[str, str] = {}
    for change in changes:
        name, separator, value = change.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{change!r:.80}: give NAME=VALUE")
        values[name] = value

    async def changed(admin: Admin) -> dict[str, dict[str, str]]:
        if values:
            await admin.change_settings(values, broker_name=broker_name)
        return await admin.settings()

    rows = [
        {"broker": name, "setting": setting, "value": value}
        for name, shown in ask(changed).items()
        for setting, value in shown.items()
        if broker_name in ("", name) and (not values or setting in values)
    ]
    print_rows(("broker", "setting", "value"), rows, as_json)
