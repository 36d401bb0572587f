"""Options and arguments that many commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

# What click decorates: the function of a command, or the command itself.
Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")

EXISTING_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
FILE: Final = click.Path(dir_okay=False, path_type=Path)

_META: Final = "dledger.kept."


def json_option(help_text: str) -> Callable[[Decorated], Decorated]:
    """--json, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def kept_option(name: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """An option that is kept in the context, so that commands need not pass it on; see `given`."""

    def keep(context: click.Context, option: click.Parameter, value: Any) -> None:
        context.meta[_META + option.opts[0]] = value

    return click.option(name, expose_value=False, callback=keep, **attributes)


def given(name: str, context: click.Context | None = None) -> Any:
    """The value of a kept option, by its long name; None if the command has no such option."""
    return (context or click.get_current_context()).meta.get(_META + name)


def options(*all_of: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several options as one, in the order in which a help text lists them."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(all_of):
            command = option(command)
        return command

    return add
