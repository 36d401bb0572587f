"""The arguments of a run."""

from __future__ import annotations

from dataclasses import dataclass

# With five members each is led through as many elections, with half of the machine.
NODES_DEFAULT = 3
TIME_S_DEFAULT = 60.0
# A week: the faults of a run are drawn before it begins.
TIME_S_MAX = 604_800.0
CALLS_A_SECOND_DEFAULT = 20.0
CLIENT_DEFAULT, CPP_CLIENT, GRPC_CLIENT = "python", "cpp", "grpc"


@dataclass(frozen=True)
class RunPlan:
    """The arguments of a run.

    Args:
        service: the name of a workload, or `module:Class`.
        nemeses: names of the catalogue, or `module:Class`; none for a run without faults.
        time_s: how long faults go on; clients go on a little longer.
        lease: whether reads of the leader rely on its lease (`max_clock_drift`).
        calls_a_second: of each client.
        network: `auto`, `namespaces` or `none`.
        seeded_bug: a mistake to make on purpose.
        system: a module that runs a member of another system, or None.
        client: of a workload of brokers: `python` is `dledger_mq`, `cpp` RocketMQ's client of C++,
            `grpc` one that asks proxies.
        grown: the group begins with one member, to which the others are added before the faults.
    """

    service: str
    nemeses: tuple[str, ...]
    nodes: int = NODES_DEFAULT
    time_s: float = TIME_S_DEFAULT
    seed: int = 0
    lease: bool = False
    calls_a_second: float = CALLS_A_SECOND_DEFAULT
    network: str = "auto"
    seeded_bug: str | None = None
    system: str | None = None
    client: str = CLIENT_DEFAULT
    grown: bool = False


def typed(number: float) -> str:
    """Return a number as a person types it: the same number, without a fraction of zero."""
    return repr(number).removesuffix(".0")
