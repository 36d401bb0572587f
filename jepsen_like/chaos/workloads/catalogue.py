"""The workloads by the names that `--workload` takes."""

from __future__ import annotations

from collections.abc import Callable

from jepsen_like.chaos.service import ServiceUnderTest
from jepsen_like.chaos.workloads.append import AppendWorkload
from jepsen_like.chaos.workloads.bank import BankWorkload
from jepsen_like.chaos.workloads.lock import LockWorkload
from jepsen_like.chaos.workloads.queue import QueueWorkload
from jepsen_like.chaos.workloads.register import CasWorkload, RegisterWorkload
from jepsen_like.chaos.workloads.session_counter import SessionCounterWorkload
from jepsen_like.chaos.workloads.set import SetWorkload

WORKLOADS: dict[str, Callable[[], ServiceUnderTest]] = {
    "register": RegisterWorkload,
    "cas": CasWorkload,
    "append": AppendWorkload,
    "set": SetWorkload,
    "bank": BankWorkload,
    "lock": LockWorkload,
    "session-counter": SessionCounterWorkload,
    "queue": QueueWorkload,
}
