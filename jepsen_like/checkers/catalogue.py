"""The checkers by the names that `--model` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jepsen_like.checkers.bank import check_bank
from jepsen_like.checkers.changed_queues import check_recalls, check_remade, check_resets
from jepsen_like.checkers.checker import Check, Request
from jepsen_like.checkers.delays import check_delays
from jepsen_like.checkers.guarded_queues import check_guarded_queue
from jepsen_like.checkers.key_order import check_key_order
from jepsen_like.checkers.linearizability import Linearizability
from jepsen_like.checkers.list_append.consistency import check_list_append
from jepsen_like.checkers.models.counter import Counter
from jepsen_like.checkers.models.fifo_queue import FifoQueue
from jepsen_like.checkers.models.kv_append import KvAppend
from jepsen_like.checkers.models.model import Model
from jepsen_like.checkers.models.mutex import Mutex
from jepsen_like.checkers.models.register import CasRegister, Register
from jepsen_like.checkers.offsets import check_offsets
from jepsen_like.checkers.parts import check_parts
from jepsen_like.checkers.queues import check_broadcast, check_queue
from jepsen_like.checkers.report import Report
from jepsen_like.checkers.session_counter import check_session_counter
from jepsen_like.checkers.sets import check_set
from jepsen_like.checkers.settled import check_settled
from jepsen_like.checkers.statistics import check_statistics
from jepsen_like.checkers.transactions import check_transactions
from jepsen_like.history.history import History
from jepsen_like.history.value import Value


class Entry(NamedTuple):
    """A checker: its promise in a line, and its check."""

    promise: str
    check: Check


def linearizable(model: Model) -> Check:
    """Return a check against a model."""

    def check(history: History, request: Request) -> Report:
        return Linearizability(model, request.bounds).check(history)

    return check


def _beginning(kind: Callable[[Value], Model], default: Value = None) -> Check:
    """Return a check against a model that begins with `initial` in the header."""

    def check(history: History, request: Request) -> Report:
        model = kind(history.header.setting("initial", default))
        return linearizable(model)(history, request)

    return check


def _check_of(model: str) -> Check | None:
    return CATALOGUE[model].check if model in CATALOGUE else None


CATALOGUE: dict[str, Entry] = {
    "register": Entry("linearizable: read, write", _beginning(Register)),
    "cas-register": Entry("linearizable: read, write, cas", _beginning(CasRegister)),
    "kv-append": Entry("linearizable strings: get, put, append", linearizable(KvAppend())),
    "counter": Entry("linearizable: add, read", _beginning(Counter, 0)),
    "mutex": Entry("linearizable lock: acquire, release", linearizable(Mutex())),
    "fifo-queue": Entry("linearizable queue: enqueue, dequeue", linearizable(FifoQueue())),
    "list-append": Entry("strict serializable transactions on lists: txn", check_list_append),
    "set": Entry("what was added is read: add, read", check_set),
    "bank": Entry("no money appears or disappears: transfer, read", check_bank),
    "queue": Entry("no message is lost, doubled, invented: send, receive, drain", check_queue),
    "guarded-queue": Entry(
        "as queue; nothing that was denied is stored: send, receive, drain, allow, deny",
        check_guarded_queue,
    ),
    "settled": Entry(
        "as queue; what was acknowledged or hidden stays away: and acknowledge, hide",
        check_settled,
    ),
    "broadcast": Entry(
        "every consumer receives each message: send, receive, drain", check_broadcast
    ),
    "key-order": Entry("one order within each key: append, read", check_key_order),
    "session-counter": Entry("increments count once: increment, read", check_session_counter),
    "offsets": Entry("offsets do not go back: commit, fetch, reset, poll, assign", check_offsets),
    "transactions": Entry(
        "committed once, others never: prepare, commit, rollback, receive, drain",
        check_transactions,
    ),
    "delays": Entry("delayed messages are not early: send, receive, drain", check_delays),
    "recalls": Entry("what was recalled never comes: as delays, and recall", check_recalls),
    "resets": Entry("what a reset gives again comes again: as queue, and reset", check_resets),
    "remade": Entry("what a deletion took never comes: as queue, and delete", check_remade),
    "parts": Entry("each part of the key keeps its own model", check_parts(_check_of)),
    "statistics": Entry("outcomes, latencies, gaps of readers: any function", check_statistics),
}

# Functions that only one model has. Other models are named by the header or by --model.
_RECOGNIZED = (
    (frozenset({"get", "put", "append"}), "kv-append"),
    (frozenset({"read", "write", "cas"}), "cas-register"),
    (frozenset({"acquire", "release"}), "mutex"),
    (frozenset({"txn"}), "list-append"),
    (frozenset({"transfer", "read"}), "bank"),
    (frozenset({"send", "receive", "drain"}), "queue"),
    (frozenset({"increment", "read"}), "session-counter"),
    (frozenset({"commit", "fetch", "reset", "poll", "assign"}), "offsets"),
    (frozenset({"prepare", "commit", "rollback", "receive", "drain"}), "transactions"),
)


def recognized(history: History) -> str | None:
    """Return the model of a history, by its header or else by its functions."""
    if history.header.model is not None:
        return history.header.model
    functions = {operation.function for operation in history.operations}
    for known, model in _RECOGNIZED:
        if functions and functions <= known:
            return model
    return None
