"""What the log says of settings that differ when the file of a running member is read again."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import click
import pytest

from dledger.command_line.reloading import SettingsOnSignal
from dledger.commands.group_commands import commands
from dledger.commands.serve_command import _CHANGEABLE

GIVEN = {"node": "n0", "peers": "n0=127.0.0.1:1", "dir": "data", "metrics": "127.0.0.1:9"}
# What a command does instead of serving, or once at its start.
ONCE = {"print-config", "exit-with-stdin", "help", "new", "join", "insecure"}


def options() -> dict[str, click.Option]:
    """All options of `serve` that may stand in the file, by their keys."""
    found = [one for one in commands.commands["serve"].params if isinstance(one, click.Option)]
    keys = {max(one.opts, key=len).removeprefix("--"): one for one in found}
    return {key: one for key, one in keys.items() if key not in ONCE}


def another(option: click.Option, key: str) -> object:
    """A value that differs from the default."""
    match option.type:
        case click.Choice(choices=choices):
            return next(one for one in choices if one != option.default)
        case click.types.BoolParamType():
            return not option.default
        case click.types.IntParamType():
            return 77
        case click.types.FloatParamType():
            return 7.5
        case _:
            return f"{key}.other:7"


def write(path: Path, settings: dict[str, object]) -> None:
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    path.write_text("[serve]\n" + "\n".join(lines) + "\n")


def running(path: Path) -> SettingsOnSignal:
    """The settings of a member that does nothing with them."""
    above = commands.make_context("dledger", ["--config", str(path), "serve"])
    ctx = commands.commands["serve"].make_context("serve", [], parent=above)
    return SettingsOnSignal(ctx, "the node", _CHANGEABLE, lambda _ctx: None, lambda _ctx: None)


def test_each_setting_that_differs_is_named_as_taken_or_as_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, silent = tmp_path / "dledger.toml", list[str]()
    assert {"tls-cert", "tls-key", "tls-ca", "log-level", "election-timeout-ms"} <= set(options())
    for key, option in options().items():
        given: dict[str, Any] = {**GIVEN, **dict.fromkeys(("tls-cert", "tls-key"), "old.pem")}
        write(path, given)
        settings = running(path)
        caplog.clear()
        write(path, {**given, key: another(option, key)})
        settings.read_again()
        if not any(
            f"changed: {key} = " in said or said.endswith(f": {key}") for said in caplog.messages
        ):
            silent.append(f"{key}: {caplog.messages}")
    assert not silent, "\n".join(silent)
