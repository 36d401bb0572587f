"""Settings refuse numbers that no member can use when they are made, not when it uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger.config import (
    MAX_BATCH_BYTES,
    MAX_ELECTION_TIMEOUT_MS,
    MAX_FLUSH_INTERVAL_MS,
    MAX_SCRUB_PERIOD_HOURS,
    NodeConfig,
)
from dledger.errors import ConfigInvalid
from dledger.node.host import HostConfig
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.store.store_config import StoreConfig

MakeSettings = Callable[..., object]

node: MakeSettings = partial(
    NodeConfig, group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=Path("data")
)
host: MakeSettings = partial(HostConfig, address="127.0.0.1:1")


def number_settings() -> Iterator[tuple[MakeSettings, str]]:
    for make, kind in (
        (node, NodeConfig),
        (host, HostConfig),
        (StoreConfig, StoreConfig),
        (SnapshotPolicy, SnapshotPolicy),
    ):
        for field in fields(kind):
            if str(field.type).removesuffix(" | None") in ("int", "float"):
                yield make, field.name


def refused(make: MakeSettings, name: str, value: Any) -> str:
    with pytest.raises(ConfigInvalid) as caught:
        make(**{name: value})
    assert caught.value.setting.endswith(name)
    return caught.value.problem


@pytest.mark.parametrize("value", [True, "5", float("nan"), float("inf"), 10**400, -(10**400)])
@pytest.mark.parametrize(("make", "name"), list(number_settings()))
def test_what_is_no_usable_number_is_refused(make: MakeSettings, name: str, value: Any) -> None:
    refused(make, name, value)


@pytest.mark.parametrize(
    ("make", "name"),
    [(node, "heartbeat_interval_ms"), (StoreConfig, "segment_bytes"), (SnapshotPolicy, "kept")],
)
def test_a_number_that_has_to_be_whole_is(make: MakeSettings, name: str) -> None:
    assert "50.5 is no whole number" in refused(make, name, 50.5)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("election_timeout_ms", MAX_ELECTION_TIMEOUT_MS),
        ("flush_interval_ms", MAX_FLUSH_INTERVAL_MS),
        ("max_batch_bytes", MAX_BATCH_BYTES),
        ("scrub_period_hours", MAX_SCRUB_PERIOD_HOURS),
    ],
)
def test_a_number_that_no_group_can_work_with_is_refused(name: str, most: int) -> None:
    node(**{name: most})
    assert refused(node, name, most + 1) == f"must be at most {most}"
