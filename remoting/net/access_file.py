"""The file by which a broker or a name server switches access control on.

It is TOML, with the user that may do everything and, for brokers, the key that seals the secrets of
all users:

    access_key = "admin"
    secret_key = "..."
    seal_key = "64 hexadecimal digits"

All members of a group have the same file, and only their user can read it.
"""

import json
import logging
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from remoting.wire.errors import RemotingError
from remoting.wire.quoted import quoted
from remoting.wire.signature import Credentials
from remoting.wire.users import SEAL_KEY_BYTES, AccessFile, secret_problem, user_problem

_log = logging.getLogger(__name__)

# Three short lines; a longer file is another one.
_MAX_FILE_BYTES: Final = 16 * 1024
_OWN: Final = ("access_key", "secret_key")
_KEYS: Final = (*_OWN, "seal_key")
_NOT_THERE: Final = (
    "No such file: `dledger-mq access` makes that of servers and of the administrator, "
    "`dledger-mq user create` that of a user"
)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class AccessFileUnusable(RemotingError):
    """The file of access control cannot be used."""

    outcome_unknown = False

    path: str
    problem: str
    _template = "{path}: {problem}"


def read_access_file(path: Path) -> AccessFile:
    """Read the file of a server. Raises AccessFileUnusable."""
    values = _read(path, _KEYS)
    try:
        seal_key = bytes.fromhex(values["seal_key"])
    except ValueError:
        seal_key = b""
    if len(seal_key) != SEAL_KEY_BYTES:
        problem = f"seal_key: give {2 * SEAL_KEY_BYTES} hexadecimal digits"
        raise AccessFileUnusable(str(path), problem)
    return AccessFile(_credentials(path, values), seal_key)


def read_credentials(path: Path) -> Credentials:
    """Read the file of a client, which may be that of a server. Raises AccessFileUnusable."""
    return _credentials(path, _read(path, _OWN))


def _credentials(path: Path, values: Mapping[str, str]) -> Credentials:
    found = Credentials(values["access_key"], values["secret_key"])
    for key, problem in (
        ("access_key", user_problem(found.access_key)),
        ("secret_key", secret_problem(found.secret_key)),
    ):
        if problem is not None:
            raise AccessFileUnusable(str(path), f"{key}: {problem}")
    return found


def _read(path: Path, needed: Sequence[str]) -> Mapping[str, str]:
    """Read a file that only its user can read. Raises AccessFileUnusable."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise AccessFileUnusable(str(path), _NOT_THERE) from None
    except OSError as error:
        raise AccessFileUnusable(str(path), error.strerror or str(error)) from None
    if mode & _OTHERS:
        raise AccessFileUnusable(
            str(path), "others can read or write it, and it has secrets: chmod 600"
        )
    if len(content) > _MAX_FILE_BYTES:
        raise AccessFileUnusable(str(path), f"more than {_MAX_FILE_BYTES} bytes: another file?")
    try:
        values = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # TOML, or not UTF-8
        raise AccessFileUnusable(str(path), f"this is not TOML: {error!s:.100}") from None
    for key in values.keys() - set(_KEYS):
        raise AccessFileUnusable(str(path), f"no such key {key!r:.80}: give {', '.join(_KEYS)}")
    for key in needed:
        if not isinstance(values.get(key), str):
            raise AccessFileUnusable(str(path), f"{key} is missing, or no text")
    return values


class AccessFileInForce:
    """The file of a running server, which is read again at a signal.

    Args:
        path: where it is.
        file: what it says now.
        take: takes over what it says later.

    Attributes:
        file: what was read last.
    """

    def __init__(
        self, path: Path, file: AccessFile, take: Callable[[AccessFile], None] = lambda _file: None
    ) -> None:
        self._path = path
        self.file = file
        self._take = take

    def read_again(self) -> None:
        """Take over another administrator, or log why the earlier one stays in force."""
        try:
            again = read_access_file(self._path)
            if again.seal_key != self.file.seal_key:
                problem = (
                    "seal_key is another one, which would open no secret of a user: put the "
                    "earlier one back"
                )
                raise AccessFileUnusable(str(self._path), problem)
        except AccessFileUnusable as error:
            _log.error("the earlier file of access control stays in force: %s", quoted(error, 400))
            return
        if again != self.file:
            self._take(again)
            self.file = again
        # A warning, so that it is told at the level of brokers.
        _log.warning("the file of access control was read again: %s", quoted(self._path))


def new_access_file(path: Path, admin: str) -> AccessFile:
    """Make the file of servers, with a new secret and a new key.

    Raises AccessFileUnusable: it is there, or the name cannot be a user's.
    """
    made = AccessFile(_new_credentials(path, admin), os.urandom(SEAL_KEY_BYTES))
    text = (
        "# Access control: all brokers of a group, and the name servers, have this same file.\n"
        "# The user that may do everything, and creates the others.\n"
        f"access_key = {_toml_text(admin)}\n"
        f'secret_key = "{made.admin.secret_key}"\n'
        "# Seals the secrets of users in the log. Without it they are lost.\n"
        f'seal_key = "{made.seal_key.hex()}"\n'
    )
    _write_new(path, text)
    return made


def new_credentials_file(path: Path, user: str) -> Credentials:
    """Make the file of a client, with a new secret. Raises as `new_access_file`."""
    made = _new_credentials(path, user)
    _write_new(path, f'access_key = {_toml_text(user)}\nsecret_key = "{made.secret_key}"\n')
    return made


def _new_credentials(path: Path, user: str) -> Credentials:
    problem = user_problem(user)
    if problem is not None:
        raise AccessFileUnusable(str(path), f"user {user!r:.80}: {problem}")
    return Credentials(user, secrets.token_urlsafe(24))


def _toml_text(name: str) -> str:
    return json.dumps(name)  # printable ASCII has the same escapes in both


def _write_new(path: Path, text: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except FileExistsError:
        problem = "it is there, and nothing is overwritten: give another name"
        raise AccessFileUnusable(str(path), problem) from None
    except OSError as error:
        raise AccessFileUnusable(str(path), error.strerror or str(error)) from None
