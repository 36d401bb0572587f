"""What each situation promises to a call, in each form."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from typing import Final

import trio

import dledger
import dledger_mq
from dledger import blocking
from dledger_mq.admin import consumer_group
from dledger_mq.producing import transaction
from remoting.wire.errors import RemotingError
from tests.forms import situations
from tests.forms.carrying_out import Hangs
from tests.forms.form_classes import ASYNCIO, BLOCKING, TRIO
from tests.forms.opened_forms import Call, OpenedForm
from tests.forms.situations import Interrupted, Outcome

Situation = Callable[[OpenedForm], list[Outcome]]
Errors = tuple[type[BaseException], ...]

_CLOSED: Final = (dledger.NodeClosing, dledger.SessionExpired, dledger_mq.ClientClosed)
_OTHER: Final = (dledger.OtherLoop, dledger_mq.OtherLoop)
_MISPLACED: Final = (blocking.CallMisplaced, dledger_mq.CallMisplaced)
_CUT_OFF: Final = (
    *(dledger.NodeClosed, blocking.CallCutOff, dledger_mq.ClosedDuringCall),
    *_CLOSED,
)

# What a situation may raise by what it is, whatever the call.
RAISED: Final[dict[Situation, dict[str, Errors]]] = {
    situations.called: {TRIO: (), BLOCKING: (), ASYNCIO: ()},
    situations.cancelled: {
        TRIO: (CancelledError,),
        BLOCKING: (Interrupted,),
        ASYNCIO: (CancelledError,),
    },
    situations.cancelled_before_they_began: {ASYNCIO: (CancelledError,)},
    situations.timed_out: {TRIO: (trio.TooSlowError,), BLOCKING: (), ASYNCIO: (TimeoutError,)},
    situations.in_a_callback: {TRIO: (), BLOCKING: _MISPLACED, ASYNCIO: _MISPLACED},
    situations.in_a_signal_handler: {BLOCKING: (), ASYNCIO: ()},
    situations.in_another_loop: {TRIO: _OTHER, BLOCKING: (), ASYNCIO: ()},
    situations.in_a_forked_process: {TRIO: _OTHER, BLOCKING: _MISPLACED, ASYNCIO: _MISPLACED},
    situations.after_the_end: {TRIO: _CLOSED, BLOCKING: _CLOSED, ASYNCIO: _CLOSED},
    situations.while_their_block_ends: {TRIO: _CUT_OFF, BLOCKING: _CUT_OFF, ASYNCIO: _CUT_OFF},
    situations.while_the_member_fails: {TRIO: _CUT_OFF, BLOCKING: _CUT_OFF, ASYNCIO: _CUT_OFF},
    situations.while_the_servers_die: {TRIO: _CUT_OFF, BLOCKING: _CUT_OFF, ASYNCIO: _CUT_OFF},
}

# There every call that does more than look must raise one of them.
ALWAYS: Final = {
    (situations.in_a_callback, BLOCKING),
    (situations.in_a_callback, ASYNCIO),
    (situations.in_another_loop, TRIO),
    *((situations.in_a_forked_process, form) for form in (TRIO, BLOCKING, ASYNCIO)),
    *((situations.after_the_end, form) for form in (TRIO, BLOCKING, ASYNCIO)),
}

# They look at what this process knows, or have nothing to do.
LOOKS: Final = {
    *("Transaction.leave_open", "Admin.group", "Producer.wait"),
    *("PushConsumer.acknowledge", "PushConsumer.give_back"),
}
LOOKS_IN_TRIO: Final = {
    *("Node.status", "Node.entries", "Node.read_stale", "Node.role_changes", "Session.settle"),
    *("PushConsumer.queues", "PopConsumer.queues"),
}


def problem(situation: Situation, form: str, outcome: Outcome) -> str | None:
    """What is wrong with an outcome, if anything is."""
    call, error = outcome
    if isinstance(error, Hangs):
        return f"{call} hangs:\n{error}"
    promised = RAISED[situation][form]
    if isinstance(error, promised):
        return None
    if (situation, form) in ALWAYS and not only_looks(situation, form, call):
        return f"{call} must raise {names(promised)}, and gives {error!r}"
    if error is None or is_documented(call, error):
        return None
    return f"{call} raises what it does not document: {error!r}"


def only_looks(situation: Situation, form: str, call: Call) -> bool:
    if situation is situations.in_a_callback and call.name.endswith("_soon"):
        return True  # it waits for nothing
    name = f"{call.forms.trio.__name__}.{call.name}"
    if form == TRIO and (name in LOOKS_IN_TRIO or call.of == "GroupClient"):
        return True  # each call of a GroupClient connects anew
    member = inspect.getattr_static(type(call.object), call.name, None)
    return member is None or isinstance(member, property) or name in LOOKS


def names(errors: Iterable[type[BaseException]]) -> str:
    return ", ".join(sorted({error.__name__ for error in errors}))


def summary(outcomes: Iterable[Outcome]) -> str:
    """How many calls have which outcome."""
    counted = Counter("returns" if error is None else type(error).__name__ for _, error in outcomes)
    return ", ".join(f"{name} {number}" for name, number in counted.most_common())


# --- documented errors ----------------------------------------------------------------------------

_ENDS: Final = (StopIteration, StopAsyncIteration)
_ROOTS: Final = {"DLedgerError", "MessagingError", "RemotingError", "DeclaredError", "Exception"}
_CLASSES: Final = {
    name: value
    for module in (dledger, dledger_mq, consumer_group, transaction)
    for name, value in vars(module).items()
    if inspect.isclass(value)
}
_REFERENCE = re.compile(r"`?([A-Z]\w+)\.(\w+)|`(\w+)")


def is_documented(call: Call, error: BaseException) -> bool:
    """Whether the docstrings of a call name the error, or a class of errors that it belongs to."""
    if isinstance(error, _ENDS):
        return call.waits_on_purpose or call.name in ("committed", "role_changes")
    if not isinstance(error, dledger.DLedgerError | dledger_mq.MessagingError | RemotingError):
        return False
    trio_form, form = call.forms.trio, type(call.object)
    text = "".join(documentation(of, call.name) for of in (trio_form, form))
    text += followed(trio_form, inspect.getdoc(trio_form) or "", "")
    kinds = {kind.__name__ for kind in type(error).__mro__} - _ROOTS
    return any(re.search(rf"\b{kind}\b", text) for kind in kinds)


def documentation(of: type, name: str, depth: int = 4) -> str:
    """The docstring of a call, and those of the calls that it names."""
    text = inspect.getdoc(inspect.getattr_static(of, name, None)) or ""
    return followed(of, text, name, depth) if depth else text


def followed(of: type, text: str, name: str, depth: int = 4) -> str:
    """A text of a class or of its call `name`, and what is said by the calls that it names."""
    for owner, of_owner, own in set(_REFERENCE.findall(text)):
        found = _CLASSES.get(owner, of if own else None)
        if found is not None and (found, of_owner or own) != (of, name):
            text += documentation(found, of_owner or own, depth - 1)
    return text
