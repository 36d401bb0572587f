"""Plans the groups of a new local cluster."""

import sys
from string import ascii_lowercase
from typing import Final

from dledger.free_ports import free_addresses
from dledger_mq.group_directory import GroupPlan, NodePlan

CLUSTER: Final = "DefaultCluster"

# Whether several processes can listen on one port, among which the system spreads connections.
_SHARES_PORTS: Final = sys.platform.startswith("linux")


def new_groups(group_count: int, node_count: int) -> tuple[GroupPlan, ...]:
    """Groups whose preferred leaders are different nodes, as far as there are enough.

    Args:
        group_count: how many groups.
        node_count: how many nodes each of them has.
    """
    addresses = iter(free_addresses(group_count * (2 * node_count + 1)))
    groups: list[GroupPlan] = []
    for number in range(group_count):
        letter = ascii_lowercase[number]
        prefix = "n" if group_count == 1 else letter
        nodes = tuple(
            NodePlan(f"{prefix}{node}", next(addresses), next(addresses))
            for node in range(node_count)
        )
        address: str | None = next(addresses)
        if node_count == 1 or not _SHARES_PORTS:
            address = None
        preferred = None if group_count == 1 else nodes[number % node_count].name
        groups.append(GroupPlan(f"broker-{letter}", nodes, address, preferred))
    return tuple(groups)
