"""Plans the groups of a new local cluster."""

import sys
from string import ascii_lowercase
from typing import Final

from dledger.free_ports import free_addresses
from dledger_mq.clusters.group_directory import GroupPlan, NodePlan

CLUSTER: Final = "DefaultCluster"

# RocketMQ's brokers serve a second port, this far from the first, and some clients use that if they
# are told nothing else: its dashboard, and versions before 4.5. A connection there must be refused
# at once, rather than come to another member.
_SECOND_PORT: Final = -2

# Whether several processes can listen on one port, among which the system spreads connections.
_SHARES_PORTS: Final = sys.platform.startswith("linux")


def new_groups(group_count: int, node_count: int) -> tuple[GroupPlan, ...]:
    """Groups whose preferred leaders are different nodes, as far as there are enough.

    Args:
        group_count: how many groups.
        node_count: how many nodes each of them has.
    """
    for_clients = iter(free_addresses(group_count * (node_count + 1), _SECOND_PORT))
    for_peers = iter(free_addresses(group_count * node_count))
    groups: list[GroupPlan] = []
    for number in range(group_count):
        letter = ascii_lowercase[number]
        prefix = "n" if group_count == 1 else letter
        nodes = tuple(
            NodePlan(f"{prefix}{node}", next(for_peers), next(for_clients))
            for node in range(node_count)
        )
        address: str | None = next(for_clients)
        if node_count == 1 or not _SHARES_PORTS:
            address = None
        preferred = None if group_count == 1 else nodes[number % node_count].name
        groups.append(GroupPlan(f"broker-{letter}", nodes, address, preferred))
    return tuple(groups)
