"""The sources of options of commands: flags, the environment, a file, defaults, in this order.

The file is TOML. A table for each command has its long options as keys, and `[all]` has those that
several commands share. In the environment an option is DLEDGER_<COMMAND>_<OPTION>.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from dledger.command_line.tls_options import TLS_KEYS, tls_value
from dledger.errors import ConfigInvalid

PREFIX = "DLEDGER"
CONFIG_VARIABLE = f"{PREFIX}_CONFIG"

# The table for every command, and the options allowed in it: other options differ in meaning.
ALL = "all"
_SHARED = ("group", "peers", "timeout", "tls-cert", "tls-key", "tls-ca")

_PATH_KEY = "dledger.config_file"
_ARGUMENTS_KEY = "dledger.arguments"

Options = Mapping[str, click.Option]


class RememberingCommand(click.Command):
    """A command that keeps its arguments, so that they can be parsed again with other defaults."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS_KEY] = list(args)
        return super().parse_args(ctx, args)


def config_option(group: click.Group) -> None:
    """Give the group of commands `--config`, and each option its environment variable."""
    group.params.append(
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            envvar=CONFIG_VARIABLE,
            is_eager=True,
            expose_value=False,
            callback=_take_file,
            help="A file with options, in TOML; see `dledger serve --print-config`.",
        )
    )
    for name, command in group.commands.items():
        for key, option in _options(command).items():
            if option.envvar is None:
                own = f"{PREFIX}_{name}_{key}".upper().replace("-", "_")
                shared = f"{PREFIX}_{key}".upper().replace("-", "_")
                option.envvar = [own, shared] if key in _SHARED else [own]


def _take_file(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and isinstance(ctx.command, click.Group):
        ctx.default_map = read_file(path, ctx.command)
        ctx.meta[_PATH_KEY] = path
    return path


def _options(command: click.Command) -> Options:
    """Return the options of a command by their long names, without the dashes."""
    found = {}
    for param in command.params:
        if isinstance(param, click.Option):
            longest = max(param.opts, key=len)
            found[longest.removeprefix("--")] = param
    return found


def read_file(path: Path, group: click.Group) -> dict[str, Any]:
    """Read a file as click's default map: by command, then by parameter.

    Raises ConfigInvalid, which names the file, the key, and the expected value.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigInvalid(str(path), f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # TOML, or not UTF-8
        raise ConfigInvalid(str(path), f"this is not TOML: {error}") from error
    found: dict[str, Any] = {name: {} for name in group.commands}
    for table, keys in content.items():
        if table != ALL and table not in group.commands:
            known = ", ".join([ALL, *sorted(group.commands)])
            raise ConfigInvalid(f"{path}, {table}", f"no such table; expected one of [{known}]")
        if not isinstance(keys, dict):
            raise ConfigInvalid(f"{path}, {table}", f"expected a table [{table}]")
    for key, value in content.get(ALL, {}).items():
        users = [
            (name, option)
            for name, command in group.commands.items()
            if key in _SHARED and (option := _options(command).get(key)) is not None
        ]
        if not users:
            raise ConfigInvalid(
                f"{path}, [{ALL}] {key}", f"no such key; expected one of {', '.join(_SHARED)}"
            )
        for name, option in users:
            found[name][option.name] = _checked(path, ALL, key, value, option)
    for name, keys in content.items():
        options = {} if name == ALL else _options(group.commands[name])
        for key, value in keys.items() if name != ALL else ():
            option = options.get(key.replace("_", "-"))
            if option is None:
                raise ConfigInvalid(
                    f"{path}, [{name}] {key}",
                    f"no such key; expected one of {', '.join(sorted(options))}",
                )
            found[name][option.name] = _checked(path, name, key, value, option)
    return found


def _checked(path: Path, table: str, key: str, value: object, option: click.Option) -> object:
    where = f"{path}, [{table}] {key}"
    if key.replace("_", "-") == "peers" and isinstance(value, dict):
        value = ",".join(f"{peer}={address}" for peer, address in value.items())
    if option.multiple:
        if not isinstance(value, list):
            raise ConfigInvalid(where, f"{_shown(value)} instead of a list of texts")
        return [_checked_one(where, item, option) for item in value]
    return _checked_one(where, value, option)


def _checked_one(where: str, value: object, option: click.Option) -> object:
    kinds, expected = _expected(option)
    if type(value) not in kinds:
        raise ConfigInvalid(where, f"{_shown(value)} instead of {expected}")
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise ConfigInvalid(where, f"{error.message} (expected {expected})") from error
    return value


def _expected(option: click.Option) -> tuple[tuple[type, ...], str]:
    """Return the types of TOML that an option takes, and their name for messages."""
    kind = option.type
    if option.is_flag or isinstance(kind, click.types.BoolParamType):
        return (bool,), "true or false"
    if isinstance(kind, click.types.IntParamType):
        return (int,), "a whole number"
    if isinstance(kind, click.types.FloatParamType):
        return (int, float), "a number"
    if isinstance(kind, click.Choice):
        return (str,), f"one of {', '.join(map(str, kind.choices))}"
    return (str,), "a text"


def _shown(value: object) -> str:
    return json.dumps(value, default=str)[:60]


# --- options in force -------------------------------------------------------------------------


def config_file(ctx: click.Context) -> Path | None:
    path = ctx.meta.get(_PATH_KEY)
    return path if isinstance(path, Path) else None


def origin(ctx: click.Context, key: str) -> str:
    """Describe the source of an option's value; `key` is its long name."""
    option = _options(ctx.command)[key]
    match ctx.get_parameter_source(option.name or ""):
        case ParameterSource.COMMANDLINE:
            return f"--{key}"
        case ParameterSource.ENVIRONMENT:
            variables = [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()
            return next((name for name in variables if os.environ.get(name)), f"--{key}")
        case ParameterSource.DEFAULT_MAP:
            return str(config_file(ctx))
        case _:
            return "default"


def located(ctx: click.Context, error: ConfigInvalid, key: str) -> ConfigInvalid:
    """Return the error with the place of the setting; `key` is an option's long name."""
    if key not in _options(ctx.command):
        return error
    where = origin(ctx, key)
    if where == str(config_file(ctx)):
        where = f"{where}, [{ctx.command.name}] {key}"
    return ConfigInvalid(f"--{key}" if where == "default" else where, error.problem)


def in_force(ctx: click.Context) -> Iterator[tuple[str, object, str]]:
    """Yield every option of a running command: its long name, its value, its origin."""
    for key, option in _options(ctx.command).items():
        value = tls_value(ctx, key) if key in TLS_KEYS else ctx.params.get(option.name or "")
        yield key, value, origin(ctx, key)


def as_toml(ctx: click.Context) -> str:
    """Return a file with every option in force, with the origins as comments."""
    lines = [f"[{ctx.command.name}]"]
    for key, value, where in in_force(ctx):
        if value is None or value == ():
            lines.append(f"# {key} is not set")
        else:
            shown = str(value) if isinstance(value, Path) else value
            lines.append(f"{key} = {json.dumps(shown)}  # {where}")
    return "\n".join(lines)


def read_again(ctx: click.Context) -> click.Context:
    """Parse the command again: with its first flags and environment, and the present file.

    Raises ConfigInvalid, and click's own errors for options that are missing now.
    """
    path, parent = config_file(ctx), ctx.parent
    if path is None or parent is None or not isinstance(parent.command, click.Group):
        raise ConfigInvalid("--config", "the command was started without a file: nothing to read")
    above = click.Context(
        parent.command,
        info_name=parent.info_name,
        default_map=read_file(path, parent.command),
    )
    above.meta[_PATH_KEY] = path
    arguments = list(ctx.meta[_ARGUMENTS_KEY])
    return ctx.command.make_context(ctx.info_name, arguments, parent=above)
