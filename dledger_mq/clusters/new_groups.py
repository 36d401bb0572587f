"""Plans the groups of a new local cluster."""

import sys
from string import ascii_lowercase
from typing import Final

from dledger.free_ports import free_addresses, takes_port
from dledger_mq.clusters.group_directory import GroupPlan, NodePlan

CLUSTER: Final = "DefaultCluster"

# RocketMQ's grpcServerPort.
GRPC_PORT: Final = 8081

# RocketMQ's brokers serve a second port at this distance from the first, and some clients use it by
# default: its dashboard, and versions before 4.5. Such a connection must be refused at once instead
# of reaching another member.
_SECOND_PORT: Final = -2

# Whether several processes can listen on one port, and the system spreads connections over them.
_SHARES_PORTS: Final = sys.platform.startswith("linux")


def new_groups(group_count: int, node_count: int) -> tuple[GroupPlan, ...]:
    """Plan groups with free addresses, whose preferred leaders are different nodes if possible."""
    for_clients = iter(free_addresses(group_count * (node_count + 1), _SECOND_PORT))
    for_peers = iter(free_addresses(group_count * node_count))
    groups: list[GroupPlan] = []
    for number, names in enumerate(node_names(group_count, node_count)):
        letter = ascii_lowercase[number]
        nodes = tuple(NodePlan(name, next(for_peers), next(for_clients)) for name in names)
        address: str | None = next(for_clients)
        if node_count == 1 or not _SHARES_PORTS:
            address = None
        preferred = None if group_count == 1 else nodes[number % node_count].name
        groups.append(GroupPlan(f"broker-{letter}", nodes, address, preferred))
    return tuple(groups)


def new_grpc_address() -> str:
    """Return where a new proxy listens: at RocketMQ's port, or at a free one if that is taken."""
    if takes_port(GRPC_PORT):
        return f"127.0.0.1:{GRPC_PORT}"
    return free_addresses(1)[0]


def node_names(group_count: int, node_count: int) -> list[list[str]]:
    """Return the names of the nodes of each group."""
    prefixes = "n" if group_count == 1 else ascii_lowercase[:group_count]
    return [[f"{prefix}{node}" for node in range(node_count)] for prefix in prefixes]
