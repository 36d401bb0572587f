"""Texts that operators store in the name server by namespace and key, such as order configurations.

They are kept in memory, and in a file if the name server was given one.
"""

from collections.abc import Callable, Mapping
from typing import Final

from nameserver.errors import TableFull
from nameserver.limits import (
    MAX_SETTINGS,
    MAX_SETTINGS_CHARACTERS,
    MAX_VALUE_CHARACTERS,
    check_topic,
)
from remoting.bodies.order_conf import read_order_conf

# The namespace of static queue lists: topic -> "brokerName:count;...". Routes include them.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class SettingTable:
    # Called after each change; if it raises, the change is undone.
    keep: Callable[[], None] | None = None

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self._characters = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            TableFull: there are too many, the setting is over 16384 characters, or all of them
                are over 1048576.
            RegistrationRefused, BodyMalformed: the topic or the value of an order configuration is
                invalid; clients would fail at it.
            SettingNotKept: from `keep`.
        """
        if namespace == ORDER_TOPIC_NAMESPACE and len(value) <= MAX_VALUE_CHARACTERS:
            check_topic(key)
            read_order_conf(value)
        size = _characters(namespace, key, value)
        if size > MAX_VALUE_CHARACTERS:
            raise TableFull("characters of one setting", MAX_VALUE_CHARACTERS)
        known = self._namespaces.get(namespace, {})
        before = known.get(key)
        if before == value:
            return
        if before is None and self._count >= MAX_SETTINGS:
            raise TableFull("settings", MAX_SETTINGS)
        grown = size if before is None else len(value) - len(before)
        if self._characters + grown > MAX_SETTINGS_CHARACTERS:
            raise TableFull("characters of settings", MAX_SETTINGS_CHARACTERS)
        self._set(namespace, key, value)
        self._keep(namespace, key, before)

    def get(self, namespace: str, key: str) -> str | None:
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return False if there was none. Raises SettingNotKept."""
        before = self.get(namespace, key)
        if before is None:
            return False
        self._set(namespace, key, None)
        self._keep(namespace, key, before)
        return True

    def all_of(self, namespace: str) -> dict[str, str]:
        return dict(self._namespaces.get(namespace, {}))

    def everything(self) -> Mapping[str, Mapping[str, str]]:
        return self._namespaces

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        known = self._namespaces.setdefault(namespace, {})
        before = known.pop(key, None)
        if before is not None:
            self._count -= 1
            self._characters -= _characters(namespace, key, before)
        if value is not None:
            self._count += 1
            self._characters += _characters(namespace, key, value)
            known[key] = value
        if not known:
            del self._namespaces[namespace]

    def _keep(self, namespace: str, key: str, before: str | None) -> None:
        """Have `keep` write a change, or undo it."""
        if self.keep is None:
            return
        try:
            self.keep()
        except BaseException:
            self._set(namespace, key, before)
            raise


def _characters(namespace: str, key: str, value: str) -> int:
    return len(namespace) + len(key) + len(value)
