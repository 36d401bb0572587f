"""Up to which version the state machines of a group's members read entries."""

from __future__ import annotations

from collections.abc import Callable, Collection


class MachineVersions:
    """What one member knows of them: its own version, and what connected members told.

    Args:
        node_id: of this member.
        own: the version of its machine; 0 if it has none.
        told: the version that another member told; None if it is not connected, or told none.
    """

    def __init__(self, node_id: str, own: int, told: Callable[[str], int | None]) -> None:
        self._node_id = node_id
        self._own = own
        self._told = told

    def of(self, member: str) -> int | None:
        """The version of one member; None if it has not told, or is not connected."""
        if member == self._node_id:
            return self._own or None
        return self._told(member)

    def oldest(self, members: Collection[str]) -> int | None:
        """The version that all these members read; None if one of them has not told."""
        versions = [self.of(member) for member in members]
        told = [version for version in versions if version is not None]
        return min(told) if told and len(told) == len(versions) else None
