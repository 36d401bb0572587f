"""The sources of options of commands: flags, the environment, a file, defaults, in this order.

The file is TOML. A table for each command has its long options as keys, and `[all]` has those that
several commands share. In the environment an option is DLEDGER_<COMMAND>_<OPTION>. A key or a
variable that is no option is refused: it would be a setting that does not count.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from click.core import ParameterSource

from dledger.command_line.ending import ending
from dledger.command_line.options import SecretOption, flag
from dledger.command_line.tls_options import TLS_KEYS, tls_value
from dledger.errors import ConfigInvalid

PREFIX = "DLEDGER"
CONFIG = "config"
PRINT_CONFIG = "print-config"

print_config_option = flag(
    f"--{PRINT_CONFIG}", "Print the settings in force and their origins, and end."
)

# The table for every command.
ALL = "all"

# Shown instead of a secret.
MASK = "***"

_PATH_KEY = "dledger.config_file"
_ARGUMENTS_KEY = "dledger.arguments"

Options = Mapping[str, click.Option]

# Kubernetes sets these for each service, whose name may begin as that of a command:
# DLEDGER_BROKER_SERVICE_HOST, and DLEDGER_BROKER_PORT=tcp://10.0.0.1:10911.
_OF_A_SERVICE: Final = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=.*"
    r"|\w+_PORT=(tcp|udp|sctp)://.*"
)


class Tables(NamedTuple):
    """The tables of a file of settings.

    Attributes:
        commands: those that read the file, by the names of their tables.
        shared: the options allowed in `[all]`: other options differ in meaning.
        others: the tables of other programs that read the same file.
    """

    commands: Mapping[str, click.Command]
    shared: tuple[str, ...]
    others: tuple[str, ...] = ()


class RememberingCommand(click.Command):
    """A command that keeps its arguments, so that they can be parsed again with other defaults."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS_KEY] = list(args)
        return super().parse_args(ctx, args)


class ServerCommand(RememberingCommand):
    """A server: a command that ends with a line about an expected error, of its sources too.

    Args:
        program: the beginning of the line.
        expected: the errors, besides ConfigInvalid and those that the system refuses.
    """

    def __init__(
        self,
        *arguments: Any,
        program: str,
        expected: tuple[type[Exception], ...] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self._program = program
        self._expected: tuple[type[Exception], ...] = (ConfigInvalid, *expected)

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the command that was typed. Click reports wrong calls."""
        with ending(self._program, self._expected):
            return super().main(*arguments, **settings)


def config_option(command: click.Command, tables: Tables, variable: str, text: str) -> None:
    """Give a command, or a group of them, `--config`, and each option its environment variable.

    `variable` names the file in the environment; `text` explains the option in --help.
    """

    def take(ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
        check_environment(os.environ, tables, variable)
        if path is not None:
            found = read_file(path, tables)
            own = found if isinstance(command, click.Group) else found[command.name or ""]
            ctx.default_map = own
            ctx.meta[_PATH_KEY] = path
        return path

    command.params.append(
        click.Option(
            [f"--{CONFIG}"],
            type=click.Path(path_type=Path, dir_okay=False),
            envvar=variable,
            is_eager=True,
            expose_value=False,
            callback=take,
            help=text,
        )
    )
    for name, one in tables.commands.items():
        for key, option in options_of(one).items():
            if option.envvar is None:
                own = f"{PREFIX}_{name}_{key}".upper().replace("-", "_")
                shared = f"{PREFIX}_{key}".upper().replace("-", "_")
                option.envvar = [own, shared] if key in tables.shared else [own]


def check_environment(environment: Mapping[str, str], tables: Tables, config_variable: str) -> None:
    """Raise ConfigInvalid for a variable that begins as those of a command and is no option."""
    for command_name, command in tables.commands.items():
        prefix = f"{PREFIX}_{command_name}_".upper().replace("-", "_")
        known = {config_variable}
        for option in options_of(command).values():
            known.update(variables_of(option))
        for name, value in sorted(environment.items()):
            if (
                name.startswith(prefix)
                and name not in known
                and not _OF_A_SERVICE.fullmatch(f"{name}={value}")
            ):
                # Compared without what all have in common.
                words = {one.removeprefix(prefix): one for one in known}
                near = get_close_matches(name.removeprefix(prefix), words, 1)
                hint = "".join(f"; did you mean {words[word]}?" for word in near)
                raise ConfigInvalid(name, f"no such variable, see --help{hint}")


def variables_of(option: click.Option) -> Sequence[str]:
    """Return the environment variables of an option; the first that is set counts."""
    return [option.envvar] if isinstance(option.envvar, str) else option.envvar or ()


def options_of(command: click.Command) -> Options:
    """Return the options of a command that have sources, by their long names without the dashes."""
    found = {}
    for param in command.params:
        if isinstance(param, click.Option):
            longest = max(param.opts, key=len)
            found[longest.removeprefix("--")] = param
    return {key: option for key, option in found.items() if key != CONFIG}


def read_file(path: Path, tables: Tables) -> dict[str, Any]:
    """Read a file as click's default map: by command, then by parameter.

    Raises ConfigInvalid, which names the file, the key, and the expected value.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigInvalid(str(path), f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # TOML, or not UTF-8
        raise ConfigInvalid(str(path), f"this is not TOML: {error}") from error
    found: dict[str, Any] = {name: {} for name in tables.commands}
    for table, keys in content.items():
        if table not in (ALL, *tables.commands, *tables.others):
            known = ", ".join([ALL, *sorted((*tables.commands, *tables.others))])
            raise ConfigInvalid(f"{path}, {table}", f"no such table; expected one of [{known}]")
        if not isinstance(keys, dict):
            raise ConfigInvalid(f"{path}, {table}", f"expected a table [{table}]")
    for key, value in content.get(ALL, {}).items():
        if (shared := key.replace("_", "-")) not in tables.shared:
            raise ConfigInvalid(
                f"{path}, [{ALL}] {key}", f"no such key; expected one of {', '.join(tables.shared)}"
            )
        for name, command in tables.commands.items():
            if (option := options_of(command).get(shared)) is not None:
                found[name][option.name] = _checked(path, ALL, key, value, option)
    for name, command in tables.commands.items():
        options = options_of(command)
        for key, value in content.get(name, {}).items():
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
            one = _expected(option)[1].removeprefix("a ")
            raise ConfigInvalid(where, f"{_shown(value, option)} instead of a list of {one}s")
        return [_checked_one(where, item, option) for item in value]
    return _checked_one(where, value, option)


def _checked_one(where: str, value: object, option: click.Option) -> object:
    kinds, expected = _expected(option)
    if type(value) not in kinds:
        raise ConfigInvalid(where, f"{_shown(value, option)} instead of {expected}")
    if isinstance(value, str) and "\0" in value:  # as neither a flag nor the environment can have
        raise ConfigInvalid(where, f"{_shown(value, option)} has a NUL character")
    try:
        option.type.convert(value, option, None)
    except click.BadParameter as error:
        problem = "this cannot be used" if isinstance(option, SecretOption) else error.message
        raise ConfigInvalid(where, f"{problem} (expected {expected})") from error
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


def _shown(value: object, option: click.Option) -> str:
    """Return a value for a message, shortened; a secret is masked."""
    return MASK if isinstance(option, SecretOption) else json.dumps(value, default=str)[:60]


# --- options in force -------------------------------------------------------------------------


class InForce(NamedTuple):
    """An option of a running command.

    Attributes:
        key: its long name, without the dashes.
        origin: the source of the value.
        is_secret: whether the value must not be shown.
    """

    key: str
    value: object
    origin: str
    is_secret: bool

    @property
    def shown(self) -> str:
        return MASK if self.is_secret else str(self.value)


def config_file(ctx: click.Context) -> Path | None:
    path = ctx.meta.get(_PATH_KEY)
    return path if isinstance(path, Path) else None


def origin(ctx: click.Context, key: str) -> str:
    """Describe the source of an option's value; `key` is its long name."""
    option = options_of(ctx.command)[key]
    match ctx.get_parameter_source(option.name or ""):
        case ParameterSource.COMMANDLINE:
            return f"--{key}"
        case ParameterSource.ENVIRONMENT:
            set_ones = (name for name in variables_of(option) if os.environ.get(name))
            return next(set_ones, f"--{key}")
        case ParameterSource.DEFAULT_MAP:
            return str(config_file(ctx))
        case _:
            return "default"


def place(ctx: click.Context, key: str) -> str:
    """Name the place of a setting for a message: a flag, a variable, or file, table and key.

    `key` is an option's long name.
    """
    where = origin(ctx, key)
    if where == str(config_file(ctx)):
        return f"{where}, [{ctx.command.name}] {key}"
    return f"--{key}" if where == "default" else where


def located(ctx: click.Context, error: ConfigInvalid, key: str) -> ConfigInvalid:
    """Return the error with the place of the setting; `key` is an option's long name."""
    if key not in options_of(ctx.command):
        return error
    return ConfigInvalid(place(ctx, key), error.problem)


def in_force(ctx: click.Context) -> Iterator[InForce]:
    """Yield every option of a running command."""
    for key, option in options_of(ctx.command).items():
        value = tls_value(ctx, key) if key in TLS_KEYS else ctx.params.get(option.name or "")
        yield InForce(key, value, origin(ctx, key), isinstance(option, SecretOption))


def as_toml(ctx: click.Context) -> str:
    """Return a file with every option in force, with the origins as comments.

    Secrets are masked, and no settings of the file. A server with that file serves, so the option
    that asks for it is left out.
    """
    lines = [f"[{ctx.command.name}]"]
    for one in in_force(ctx):
        if one.key == PRINT_CONFIG:
            continue
        if one.value is None or one.value == ():
            lines.append(f"# {one.key} is not set")
        elif one.is_secret:
            lines.append(f"# {one.key} = {one.shown}  # {one.origin}")
        else:
            value = str(one.value) if isinstance(one.value, Path) else one.value
            lines.append(f"{one.key} = {json.dumps(value)}  # {one.origin}")
    return "\n".join(lines)


def read_again(ctx: click.Context) -> click.Context:
    """Parse the command again: with its first flags and environment, and the present file.

    Raises ConfigInvalid, and click's own errors for options that are missing now.
    """
    path, parent = config_file(ctx), ctx.parent
    if path is None:
        raise ConfigInvalid("--config", "the command was started without a file: nothing to read")
    above = None
    if parent is not None:
        # Its own arguments are not kept: the file is all that they give to its commands.
        above = click.Context(parent.command, info_name=parent.info_name)
        (option,) = [one for one in parent.command.params if one.name == CONFIG]
        assert option.callback is not None
        option.callback(above, option, path)
    return ctx.command.make_context(ctx.info_name, list(ctx.meta[_ARGUMENTS_KEY]), parent=above)
