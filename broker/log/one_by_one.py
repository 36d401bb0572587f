"""Calls of several functions of which none is harmed by the errors of another.

All loops over answers call through here: the sends of an append, confirmed reads, waiting pops, the
services that hear of an apply.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from broker.errors import RequestRefused
from dledger import Fatal
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")

_REMARK: Final = (
    "the broker failed, and it is not known whether this was done: see the broker's log, ask again"
)


def call(
    what: str,
    function: Callable[Arguments, object],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> bool:
    """Call a function and return whether it returned. An exception is a defect and is logged;
    `what` names the call in the log.
    """
    try:
        function(*args, **kwargs)
    except Exception as error:
        failure(what, error)
        return False
    return True


def call_each(
    what: str,
    functions: Iterable[Callable[Arguments, object]],
    *args: Arguments.args,
    **kwargs: Arguments.kwargs,
) -> None:
    """Call each function, even if others raise. Arguments as in `call`."""
    for function in functions:
        try:  # as in `call`, without its cost for each function
            function(*args, **kwargs)
        except Exception as error:
            failure(what, error)


def failure(what: str, error: Exception) -> RequestRefused:
    """Log an exception, and return the refusal for the client, if it can be answered.

    A failure of the log, which ends the member, is not a defect: clients ask another member.
    """
    if isinstance(error, Fatal):
        _log.warning("%s: left to another member: %s", what, quoted(error))
        return RequestRefused.not_available(f"this member ends, ask another one: {error}")
    _log.error("%s failed", what, exc_info=error)
    return RequestRefused.failed(_REMARK)
