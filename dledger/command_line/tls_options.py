"""The options that name certificates."""

from __future__ import annotations

from pathlib import Path

import click

from dledger.command_line.options import FILE, given, kept_option, options
from dledger.errors import ConfigInvalid
from dledger.network.tls_config import TlsConfig

_OPTIONS = {
    "--tls-cert": "Certificate to show, with TLS; see docs/security.md.",
    "--tls-key": "Its key.",
    "--tls-ca": "Certificates of the authorities that are believed.",
}
# The long names of the options, without their dashes.
TLS_KEYS = tuple(name.removeprefix("--") for name in _OPTIONS)

# `given_tls` returns their values.
tls_options = options(
    *(
        kept_option(
            name,
            text,
            type=FILE,
            envvar="DLEDGER_" + name.removeprefix("--").replace("-", "_").upper(),
            show_envvar=True,
        )
        for name, text in _OPTIONS.items()
    )
)


def tls_value(context: click.Context, key: str) -> Path | None:
    value: Path | None = given(f"--{key}", context)
    return value


def given_tls(context: click.Context | None = None) -> TlsConfig | None:
    """Return the certificates given to this command.

    Raises ConfigInvalid if only a part of them is given.
    """
    found: dict[str, Path | None] = {name: given(name, context) for name in _OPTIONS}
    paths = [path for path in found.values() if path is not None]
    if not paths:
        return None
    if len(paths) < len(_OPTIONS):
        missing = " and ".join(name for name, path in found.items() if path is None)
        raise ConfigInvalid(missing, "is missing: TLS takes a certificate, its key and authorities")
    certificate, key, authorities = paths
    return TlsConfig(certificate=certificate, key=key, authorities=authorities)


def tls_arguments(tls: TlsConfig | None) -> list[str]:
    """Return the options that pass these certificates to another process."""
    if tls is None:
        return []
    paths = (tls.certificate, tls.key, tls.authorities)
    return [part for name, path in zip(_OPTIONS, paths, strict=True) for part in (name, str(path))]
