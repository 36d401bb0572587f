"""The options that name certificates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from dledger.errors import ConfigInvalid
from dledger.network.tls_config import TlsConfig

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = {
    "--tls-cert": "Certificate to show, with TLS; see docs/security.md.",
    "--tls-key": "Its key.",
    "--tls-ca": "Certificates of the authorities that are believed.",
}
_META = "dledger.tls."
# The long names of the options, without their dashes.
TLS_KEYS = tuple(name.removeprefix("--") for name in _OPTIONS)


def tls_options(function: F) -> F:
    """Add the options that name certificates. `given_tls` returns their values."""
    for name, text in reversed(_OPTIONS.items()):
        function = click.option(
            name,
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="DLEDGER_" + name.removeprefix("--").replace("-", "_").upper(),
            show_envvar=True,
            help=text,
            expose_value=False,
            callback=_keep,
        )(function)
    return function


def _keep(context: click.Context, option: click.Parameter, value: Path | None) -> None:
    # Kept in the context, so that no command has to pass on three more arguments.
    context.meta[_META + option.opts[0]] = value


def is_tls(key: str) -> bool:
    """Whether a long name of an option, without its dashes, is one of these."""
    return key in TLS_KEYS


def tls_value(context: click.Context, key: str) -> Path | None:
    """What was given for such an option."""
    value: Path | None = context.meta.get(f"{_META}--{key}")
    return value


def given_tls(context: click.Context | None = None) -> TlsConfig | None:
    """Return the certificates given to this command.

    Raises ConfigInvalid if only a part of them is given.
    """
    meta = (context or click.get_current_context()).meta
    given: dict[str, Path | None] = {name: meta.get(_META + name) for name in _OPTIONS}
    paths = [path for path in given.values() if path is not None]
    if not paths:
        return None
    if len(paths) < len(_OPTIONS):
        missing = " and ".join(name for name, path in given.items() if path is None)
        raise ConfigInvalid(missing, "is missing: TLS takes a certificate, its key and authorities")
    certificate, key, authorities = paths
    return TlsConfig(certificate=certificate, key=key, authorities=authorities)


def tls_arguments(tls: TlsConfig | None) -> list[str]:
    """Return the options that pass these certificates to another process."""
    if tls is None:
        return []
    paths = (tls.certificate, tls.key, tls.authorities)
    return [part for name, path in zip(_OPTIONS, paths, strict=True) for part in (name, str(path))]
