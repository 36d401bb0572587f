"""Parts of a broker for tests of one of its objects, which asks for some of them only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from broker.config import BrokerConfig
from broker.limits import BrokerLimits
from broker.log.state import BrokerState
from broker.serving.parts import Parts, Shared
from remoting.net.address import Address
from tests.broker.untimed import AtOnce


def parts_alone(
    state: BrokerState,
    log: object = None,
    *,
    made: Mapping[Shared[Any], object] | None = None,
    limits: BrokerLimits | None = None,
    directory: Path = Path("unused"),
    **others: Any,
) -> Parts:
    """Of a leader whose clocks stand still and whose name servers and group agree at once.

    Args:
        state: the applied state.
        log: what the object asks of the log.
        made: shared objects, or what stands for them.
        limits: of the configuration.
        directory: of the configuration.
        others: further attributes of `Parts`.
    """
    config = BrokerConfig(
        group="broker-a",
        node_id="n0",
        peers={},
        listen=Address("127.0.0.1", 10911),
        directory=directory,
        limits=limits or BrokerLimits(),
    )
    given: dict[str, Any] = {
        "announce": lambda then: None if then is None else then(),
        "confirm": lambda then: then(None),
        "work": AtOnce(),
        "led_term": lambda: 1,
        "wall_clock_ms": lambda: 1,
        "clock": float,
        "process_id": 1,
        "figures": dict,
        **others,
    }
    queues = cast(Any, None)
    return Parts(
        config=config,
        log=cast(Any, log),
        state=state,
        queues=queues,
        made=dict(made or {}),
        **given,
    )
