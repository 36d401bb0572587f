"""Files in TOML with secrets: of the users at the log's port, and of one user."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from dledger.errors import ConfigInvalid
from dledger.wire.proof import Credentials

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_KEYS = ("access_key", "secret_key")
# Of the file of access control of brokers, whose user may be read from there.
_OTHER_KEYS = ("seal_key",)
_MAX_CREDENTIALS_BYTES = 16 * 1024


def read_private(setting: str, path: Path, most_bytes: int) -> dict[str, Any]:
    """Read a file that only its user can read. Raises ConfigInvalid that names `setting`."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigInvalid(setting, f"{path}: {error.strerror or error}") from None
    if mode & _OTHERS:
        problem = f"{path}: others can read or write it, and it has secrets: chmod 600"
        raise ConfigInvalid(setting, problem)
    if len(content) > most_bytes:
        raise ConfigInvalid(setting, f"{path}: more than {most_bytes} bytes: another file?")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # TOML, or not UTF-8
        # The error of TOML names a place, and no text of the file.
        raise ConfigInvalid(setting, f"{path}: this is not TOML: {error!s:.100}") from None


def check_keys(setting: str, where: str, found: Collection[str], known: Collection[str]) -> None:
    """Raise ConfigInvalid for a key that is not known."""
    for key in found:
        if key not in known:
            problem = f"{where}: no such key {key!r:.80}: give {', '.join(known)}"
            raise ConfigInvalid(setting, problem)


def read_credentials(path: Path) -> Credentials:
    """Read the file of a user: `access_key`, its name, and `secret_key`, as `dledger-mq` has it.

    Only its owner can read it. Raises ConfigInvalid.
    """
    values = read_private("credentials", path, _MAX_CREDENTIALS_BYTES)
    check_keys("credentials", str(path), values, (*_KEYS, *_OTHER_KEYS))
    for key in _KEYS:
        if not isinstance(values.get(key), str):
            raise ConfigInvalid("credentials", f"{path}: {key} is missing, or no text")
    try:
        return Credentials(values["access_key"], values["secret_key"])
    except ConfigInvalid as error:
        raise ConfigInvalid(error.setting, f"{path}: {error.problem}") from None
