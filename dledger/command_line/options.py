"""Options and arguments that many commands have."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

# Click decorates the function of a command, or the command itself.
Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")

EXISTING_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
FILE: Final = click.Path(dir_okay=False, path_type=Path)

_META: Final = "dledger.kept."


class NumberRange(click.FloatRange):
    """A range of numbers without "nan", which is within every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class SecretOption(click.Option):
    """An option whose value is never shown: not by --print-config, in an error or in a log line."""


def option(
    *names_and_help: str,
    default: Any = None,
    show_default: bool = True,
    secret: bool = False,
    **attributes: Any,
) -> Callable[[Decorated], Decorated]:
    """Declare an option by its names, and last its text in --help, which also shows the default.

    Args:
        names_and_help: the names begin with dashes; a name without is that of the parameter.
        default: the value if none is given.
        show_default: whether --help shows the default.
        secret: whether the value is masked wherever it would be shown.
        attributes: more attributes of click's option.
    """
    *names, text = names_and_help
    if default is not None:
        attributes |= {"default": default, "show_default": show_default}
    if secret:
        attributes["cls"] = SecretOption
    return click.option(*names, help=text, **attributes)


def flag(*names_and_help: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    return option(*names_and_help, is_flag=True, **attributes)


def json_option(text: str) -> Callable[[Decorated], Decorated]:
    """Declare --json, passed as `as_json`."""
    return flag("--json", "as_json", text)


def kept_option(*names_and_help: str, **attributes: Any) -> Callable[[Decorated], Decorated]:
    """Declare an option that is kept in the context, so that commands need not pass it on; see
    `given`.
    """

    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta[_META + parameter.opts[0]] = value

    return option(*names_and_help, expose_value=False, callback=keep, **attributes)


def given(name: str, context: click.Context | None = None) -> Any:
    """Return the value of a kept option, by its long name; None if the command has no such
    option.
    """
    return (context or click.get_current_context()).meta.get(_META + name)


def options(*all_of: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Join several options into one, in the order in which a help text lists them."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(all_of):
            command = option(command)
        return command

    return add
