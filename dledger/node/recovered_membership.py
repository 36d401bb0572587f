"""Recovers the members of a group from the log, a snapshot and the settings."""

from __future__ import annotations

from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration, decode_configuration
from dledger.core.membership.membership import Membership
from dledger.entry import BEFORE_FIRST_INDEX, decode_entries
from dledger.errors import ConfigurationLost, ConfigurationMalformed
from dledger.store.log_store import LogStore


def recovered_membership(
    store: LogStore, began_with: Configuration, snapshot: bytes = b""
) -> Membership:
    """Recover the membership from the first configuration and all changes that are in the log.

    Every change names the configuration that it replaces. So the log is followed back, from the
    changes that opening the store found, to the configuration of the snapshot or the first one.

    Args:
        store: the log.
        began_with: the first members; empty for a member that is still to join.
        snapshot: the configuration in the header of the snapshot that was restored, if any.

    Raises ConfigurationLost.
    """
    start = NumberedConfiguration(BEFORE_FIRST_INDEX, began_with)
    if snapshot:
        found = decode_configuration(snapshot)
        # The settings may have newer addresses of the first members.
        if found.index != BEFORE_FIRST_INDEX or not began_with.voters:
            start = found
    indexes = [index for index in store.configuration_indexes if index > start.index]
    changes = {index: _read(store, index) for index in indexes}
    base = changes[indexes[0]].index if indexes else start.index
    while base > start.index:
        changes[base] = _read(store, base)
        base = changes[base].index
    membership = Membership(start.configuration, start.index, began_with)
    for index in sorted(changes):
        membership.appended(index, changes[index])
    return membership


def _read(store: LogStore, index: int) -> NumberedConfiguration:
    if index < store.first_index:
        raise ConfigurationLost(index, f"the log begins with entry {store.first_index}")
    (entry,) = decode_entries(store.read(index, index, 1))
    try:
        return decode_configuration(entry.body)
    except ConfigurationMalformed as error:
        raise ConfigurationLost(index, error.problem) from error
