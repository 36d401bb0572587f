"""Reads the settings of a process again at SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable, Collection
from contextlib import AbstractContextManager, nullcontext

import click

from dledger.command_line.option_sources import InForce, config_file, in_force, read_again
from dledger.declared_error import DeclaredError

logger = logging.getLogger(__name__)

LOGGING = ("log-format", "log-level")


class SettingsOnSignal:
    """Reads the settings of one command from its file at each signal.

    Args:
        ctx: the context of the running command.
        what: the name of what runs, for messages: "the node".
        changeable: the options that may change while it runs, by their long names; besides those
            of the log.
        take: checks the options of a context, and takes over those that may change. Raises if any
            option is invalid; then it has changed nothing.
        log: sets up the log by the options of a context.
        then: called last, whatever came of it: reads files that options name, such as certificates.
        without_file: called instead if the command was started without a file; None: that is an
            error in the log.
    """

    def __init__(
        self,
        ctx: click.Context,
        what: str,
        changeable: Collection[str],
        take: Callable[[click.Context], None],
        log: Callable[[click.Context], None],
        then: Callable[[], None] = lambda: None,
        without_file: Callable[[], None] | None = None,
    ) -> None:
        self._ctx = ctx
        self._what = what
        self._changeable = (*LOGGING, *changeable)
        self._take = take
        self._log = log
        self._then = then
        self._without_file = without_file
        self._values = {one.key: one.value for one in in_force(ctx)}

    async def run(
        self,
        signals: AsyncIterable[int],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Read again at each signal; `around` makes a block for each time."""
        async for _ in signals:
            with around():
                self.read_again()

    def read_again(self) -> None:
        """Apply changed settings. An invalid file changes nothing."""
        if self._without_file is not None and config_file(self._ctx) is None:
            self._without_file()
            return
        try:
            ctx = read_again(self._ctx)
            self._take(ctx)
        except (DeclaredError, click.ClickException) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            logger.error(
                "nothing was changed: %s", " ".join(text.split()), extra={"event": "settings"}
            )
        else:
            self._tell(ctx)
        self._then()

    def _tell(self, ctx: click.Context) -> None:
        """Take over the log's settings, and log what was taken over and what was not."""
        changed = [one for one in in_force(ctx) if one.value != self._values[one.key]]
        able = [one for one in changed if one.key in self._changeable]
        if any(one.key in LOGGING for one in able):
            self._log(ctx)
        self._values.update({one.key: one.value for one in able})
        if able:
            logger.info(
                "changed: %s",
                ", ".join(f"{one.key} = {one.shown}" for one in able),
                extra={"event": "settings", "settings": _keys(able)},
            )
        if unable := _keys([one for one in changed if one not in able]):
            logger.warning(
                "not changed until %s is started again: %s",
                self._what,
                ", ".join(unable),
                extra={"event": "settings", "settings": unable},
            )


def _keys(options: Collection[InForce]) -> list[str]:
    return [one.key for one in options]
