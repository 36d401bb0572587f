"""Calling one of several that know nothing of one another: what it raises harms none of the others.

Everything that answers in a loop calls through here: the sends of an append, the reads that were
confirmed, the pops that wait, the services that hear of an apply.
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
    """Call a function; whether it returned. What it raises is a defect, and logged as one.

    Args:
        what: what it does, for the log.
        function: the function.
        args: for it.
        kwargs: for it.
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
    """Call functions, each whatever the others raise. Arguments as in `call`."""
    for function in functions:
        try:  # as `call` does it, without a call for each
            function(*args, **kwargs)
        except Exception as error:
            failure(what, error)


def failure(what: str, error: Exception) -> RequestRefused:
    """Log what was raised; the refusal to answer the request with, if its client can be answered.

    The log's own failure, by which the member ends, is no defect: clients ask another member.
    """
    if isinstance(error, Fatal):
        _log.warning("%s: left to another member: %s", what, quoted(error))
        return RequestRefused.not_available(f"this member ends, ask another one: {error}")
    _log.error("%s failed", what, exc_info=error)
    return RequestRefused.failed(_REMARK)
