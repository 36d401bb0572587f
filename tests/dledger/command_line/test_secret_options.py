"""The value of an option that is secret is shown nowhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click
import pytest

from dledger.command_line.option_sources import (
    RememberingCommand,
    Tables,
    as_toml,
    config_option,
    read_file,
)
from dledger.command_line.options import option
from dledger.command_line.reloading import SettingsOnSignal
from dledger.errors import ConfigInvalid


@click.command("server", cls=RememberingCommand)
@option("--password", "A secret.", secret=True)
@option("--pin", "A secret number.", type=int, secret=True)
@option("--name", "No secret.")
def server(**_options: Any) -> None:
    pass


TABLES = Tables({"server": server}, ())
config_option(server, TABLES, "UNUSED_CONFIG", "A file.")


def test_a_secret_is_masked_in_print_config_errors_and_reloads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "server.toml"
    path.write_text("[server]\npassword = 'hunter2'\nname = 'plain'\n")
    ctx = server.make_context("server", ["--config", str(path)])
    assert ctx.params["password"] == "hunter2"
    shown = as_toml(ctx)
    assert f"# password = ***  # {path}" in shown.splitlines()
    assert f'name = "plain"  # {path}' in shown.splitlines()
    assert "# pin is not set" in shown.splitlines()

    caplog.set_level(logging.INFO)
    settings = SettingsOnSignal(
        ctx, "it", ("password", "name"), lambda _ctx: None, lambda _ctx: None
    )
    path.write_text("[server]\npassword = 'hunter3'\nname = 'other'\n")
    settings.read_again()
    assert caplog.messages == ["changed: password = ***, name = other"]

    for text in ("password = ['hunter4']", "pin = 'hunter4'"):
        path.write_text(f"[server]\n{text}\n")
        with pytest.raises(ConfigInvalid, match=r"\*\*\* instead of") as raised:
            read_file(path, TABLES)
        assert "hunter" not in str(raised.value)
    assert "hunter" not in caplog.text
