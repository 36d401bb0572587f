"""Texts that operators store in the name server by namespace and key, such as order configurations.

They are kept in memory only: a name server that starts again has none until they are put again.
"""

from typing import Final

from nameserver.errors import TableFull

# The namespace of static queue lists: topic -> "brokerName:count;...". It goes into routes.
ORDER_TOPIC_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

# An operator types them; together with the longest value they bound the memory to 64 MiB.
MAX_SETTINGS: Final = 4096
MAX_VALUE_CHARACTERS: Final = 16 * 1024


class SettingTable:
    """Values by namespace and key."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {}
        self._count = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value.

        Raises:
            TableFull: there are too many, or the value is over 16384 characters.
        """
        if len(value) + len(namespace) + len(key) > MAX_VALUE_CHARACTERS:
            raise TableFull("characters of one setting", MAX_VALUE_CHARACTERS)
        known = self._namespaces.get(namespace, {})
        if key not in known:
            if self._count >= MAX_SETTINGS:
                raise TableFull("settings", MAX_SETTINGS)
            self._count += 1
        known[key] = value
        self._namespaces[namespace] = known

    def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        return self._namespaces.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; false when there was none."""
        known = self._namespaces.get(namespace, {})
        if known.pop(key, None) is None:
            return False
        self._count -= 1
        if not known:
            del self._namespaces[namespace]
        return True

    def all_of(self, namespace: str) -> dict[str, str]:
        """Every value of a namespace by key."""
        return dict(self._namespaces.get(namespace, {}))
