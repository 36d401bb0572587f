"""Starts the metrics on demand: a member without metrics does not load their libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

from dledger.node.node import Node

if TYPE_CHECKING:
    from prometheus_client.core import Metric


async def serve_metrics(
    nodes: Callable[[], Iterable[Node]],
    address: str,
    more: Callable[[], Iterable[Metric]] | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
    waits: Callable[[], Iterable[str]] = tuple,
) -> None:
    """Answer `GET /metrics` with the state of nodes, until it is cancelled.

    `nodes` is called for each request; `address` is host:port; `more` is called for further metrics
    of prometheus_client's kinds; `task_status` gets the port once it listens. `/healthz` answers
    200, and `/readyz` 200 or 503 with a line for each thing that a node waits for, and for each
    line of `waits`. Without a node the process is not ready. Raises AddressInUse, ConfigInvalid.
    """
    # Here, not above: the libraries for HTTP and for the format take an eighth of a member's start.
    from dledger.metrics.metrics_server import serve_nodes

    await serve_nodes(nodes, address, more, task_status, waits)


async def serve_process_metrics(
    address: str,
    figures: Callable[[], Iterable[Metric]],
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer the same for a process without nodes; `figures` is called for its metrics."""
    from dledger.metrics.metrics_server import serve_figures

    await serve_figures(address, figures, task_status)
