"""Texts that operators store in the name server by namespace and key, such as order configurations.

They are kept in memory only: a name server that starts again has none until they are put again.
"""

from typing import Final

from nameserver.errors import TableFull
from nameserver.limits import MAX_SETTINGS, MAX_SETTINGS_CHARACTERS, MAX_VALUE_CHARACTERS

# The namespace of static queue lists: topic -> "brokerName:count;...". It goes into routes.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


class SettingTable:
    """Values by namespace and key."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0
        self._characters = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            TableFull: there are too many, the setting is over 16384 characters, or all of them
                are over 1048576.
        """
        size = _characters(namespace, key, value)
        if size > MAX_VALUE_CHARACTERS:
            raise TableFull("characters of one setting", MAX_VALUE_CHARACTERS)
        known = self._namespaces.get(namespace, {})
        before = known.get(key)
        if before is None and self._count >= MAX_SETTINGS:
            raise TableFull("settings", MAX_SETTINGS)
        grown = size if before is None else len(value) - len(before)
        if self._characters + grown > MAX_SETTINGS_CHARACTERS:
            raise TableFull("characters of settings", MAX_SETTINGS_CHARACTERS)
        self._count += before is None
        self._characters += grown
        known[key] = value
        self._namespaces[namespace] = known

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; false when there was none."""
        known = self._namespaces.get(namespace, {})
        value = known.pop(key, None)
        if value is None:
            return False
        self._count -= 1
        self._characters -= _characters(namespace, key, value)
        if not known:
            del self._namespaces[namespace]
        return True

    def all_of(self, namespace: str) -> dict[str, str]:
        """Every value of a namespace by key."""
        return dict(self._namespaces.get(namespace, {}))


def _characters(namespace: str, key: str, value: str) -> int:
    """The size of one setting."""
    return len(namespace) + len(key) + len(value)
