"""Reads the settings of a process again at SIGHUP."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable
from typing import Any

import click

from dledger.command_line.tls_options import TLS_KEYS, tls_value
from dledger.commands.log_lines import set_up_logging
from dledger.commands.option_sources import read_again
from dledger.config import CHANGEABLE, NodeConfig
from dledger.errors import ConfigInvalid
from dledger.node.node import Node

logger = logging.getLogger(__name__)

# Options of `serve` that may change while the node runs, besides the node's own.
_LOGGING = ("log_format", "log_level")
_NODE = ("preferred_leader", "scrub_period_hours")
_SNAPSHOT = "snapshot_"


class SettingsOnSignal:
    """Reads one node's settings from its file at each signal.

    Args:
        node: the node to reconfigure.
        ctx: the context of the running command.
        config_of: makes the node's settings from a context. Raises ConfigInvalid.
    """

    def __init__(
        self, node: Node, ctx: click.Context, config_of: Callable[[click.Context], NodeConfig]
    ) -> None:
        self._node = node
        self._ctx = ctx
        self._config_of = config_of
        self._values = _settings(ctx)

    async def run(self, signals: AsyncIterable[int]) -> None:
        async for _ in signals:
            self.read_again()

    def read_again(self) -> None:
        """Apply changed settings. An invalid file changes nothing."""
        try:
            self._take_over(read_again(self._ctx))
        except (ConfigInvalid, click.ClickException) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            logger.error(
                "nothing was changed: %s", " ".join(text.split()), extra={"event": "settings"}
            )
        self._read_certificates()

    def _take_over(self, ctx: click.Context) -> None:
        wanted = self._config_of(ctx)
        settings = _settings(ctx)
        changed = [name for name, value in settings.items() if value != self._values[name]]
        able = [name for name in changed if _can_change(name)]
        taken = {name: getattr(wanted, name) for name in CHANGEABLE}
        self._node.reconfigure(self._node.config.with_changes(taken))
        if any(name in _LOGGING for name in able):
            form, level = ctx.params["log_format"], ctx.params["log_level"]
            set_up_logging(wanted.group, wanted.node_id, form, level)
        self._values.update({name: settings[name] for name in able})
        if able:
            logger.info(
                "changed: %s",
                ", ".join(f"{_key(name)} = {settings[name]}" for name in able),
                extra={"event": "settings", "settings": [_key(name) for name in able]},
            )
        if unable := [_key(name) for name in changed if name not in able]:
            logger.warning(
                "not changed until the node is started again: %s",
                ", ".join(unable),
                extra={"event": "settings", "settings": unable},
            )

    def _read_certificates(self) -> None:
        """Read the certificates again, from the paths given at the start."""
        if self._node.config.tls is None:
            return
        try:
            self._node.reload_tls()
        except ConfigInvalid as error:
            logger.error("the old certificates stay in use: %s", error)
        else:
            logger.info("certificates were read again")


def _settings(ctx: click.Context) -> dict[str, Any]:
    """Return all options of a command, certificates included."""
    return {**ctx.params, **{key.replace("-", "_"): tls_value(ctx, key) for key in TLS_KEYS}}


def _can_change(name: str) -> bool:
    return name in _LOGGING or name in _NODE or name.startswith(_SNAPSHOT)


def _key(name: str) -> str:
    return {"folder": "dir", "node_id": "node", "joining": "join"}.get(name, name).replace("_", "-")
