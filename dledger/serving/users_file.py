"""The file of the users of the log's port, and their rights.

mode = "enforcing"                # or "permissive": callers prove nothing
member_secrets = ["..."]          # members show the first, and believe all

[users.orders]
secret = "..."                    # without it the user's certificate proves it
rights = ["append", "read"]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dledger.errors import ConfigInvalid
from dledger.network.private_file import check_keys, read_private
from dledger.wire.proof import secret_problem, user_problem
from dledger.wire.rights import Right

ENFORCING, PERMISSIVE = "enforcing", "permissive"

MAX_USERS = 10_000
# That of as many users with long names.
_MAX_FILE_BYTES = 8 * 1024 * 1024
# One, and while it is changed two.
_MAX_MEMBER_SECRETS = 4

_SETTING = "users"
_KEYS = ("mode", "member_secrets", "users")
_KEYS_OF_USER = ("secret", "rights")


class _User(NamedTuple):
    secret: bytes | None
    rights: frozenset[Right]


class _Content(NamedTuple):
    asks: bool
    member_secrets: tuple[bytes, ...]
    users: Mapping[str, _User]


class UsersFile:
    """An authority by a file. Raises ConfigInvalid.

    Args:
        path: of the file.
        speaks_tls: whether members prove themselves by certificates; without, they need a secret.
    """

    def __init__(self, path: Path, *, speaks_tls: bool) -> None:
        self._path = path
        self._speaks_tls = speaks_tls
        self._content = _read(path, speaks_tls)

    def reload(self) -> None:
        """Read the file again. It counts at once, also on connections that are open.

        Raises ConfigInvalid, and keeps what it had.
        """
        self._content = _read(self._path, self._speaks_tls)

    @property
    def asks(self) -> bool:
        """As in Authority."""
        return self._content.asks

    @property
    def member_secrets(self) -> tuple[bytes, ...]:
        """As in Authority."""
        return self._content.member_secrets

    def knows(self, user: str) -> bool:
        """As in Authority."""
        return user in self._content.users

    def secret_of(self, user: str) -> bytes | None:
        """As in Authority."""
        known = self._content.users.get(user)
        return None if known is None else known.secret

    def allows(self, user: str, right: Right, host: str) -> bool:
        """As in Authority."""
        known = self._content.users.get(user)
        return known is not None and right in known.rights


def _read(path: Path, speaks_tls: bool) -> _Content:
    values = read_private(_SETTING, path, _MAX_FILE_BYTES)
    check_keys(_SETTING, str(path), values, _KEYS)
    mode = values.get("mode", ENFORCING)
    if mode not in (ENFORCING, PERMISSIVE):
        raise _invalid(path, "mode", f"give {ENFORCING!r} or {PERMISSIVE!r}")
    secrets = values.get("member_secrets", [])
    if not isinstance(secrets, list) or len(secrets) > _MAX_MEMBER_SECRETS:
        raise _invalid(path, "member_secrets", f"give a list of 1 to {_MAX_MEMBER_SECRETS} texts")
    for secret in secrets:
        if (problem := secret_problem(secret)) is not None:
            raise _invalid(path, "member_secrets", problem)
    if not secrets and not speaks_tls:
        problem = "is missing: without TLS a member proves by it that it is one"
        raise _invalid(path, "member_secrets", problem)
    users = values.get("users", {})
    if not isinstance(users, dict) or len(users) > MAX_USERS:
        raise _invalid(path, "users", f"give a table for each user, {MAX_USERS} at most")
    found = {name: _user(path, name, user, speaks_tls) for name, user in users.items()}
    return _Content(mode == ENFORCING, tuple(secret.encode() for secret in secrets), found)


def _user(path: Path, name: str, values: Any, speaks_tls: bool) -> _User:
    where = f"[users.{name!s:.80}]"
    if (problem := user_problem(name)) is not None:
        raise _invalid(path, where, problem)
    if not isinstance(values, dict):
        raise _invalid(path, where, "give a table with secret and rights")
    check_keys(_SETTING, f"{path}, {where}", values, _KEYS_OF_USER)
    secret = values.get("secret")
    if secret is None and not speaks_tls:
        raise _invalid(path, where, "secret is missing: without TLS nothing else proves a user")
    if secret is not None and (problem := secret_problem(secret)) is not None:
        raise _invalid(path, f"{where} secret", problem)
    words, known = values.get("rights"), ", ".join(Right)
    if not isinstance(words, list):
        raise _invalid(path, f"{where} rights", f"give a list of {known}")
    for word in words:
        if word not in tuple(Right):
            raise _invalid(path, f"{where} rights", f"{word!r:.40} is none of {known}")
    return _User(None if secret is None else secret.encode(), frozenset(map(Right, words)))


def _invalid(path: Path, where: str, problem: str) -> ConfigInvalid:
    return ConfigInvalid(_SETTING, f"{path}, {where}: {problem}")
