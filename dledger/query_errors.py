"""The errors of queries and of other requests that read, in the tree of `dledger.errors`."""

from __future__ import annotations

from dledger.errors import Rejected

# Names listed in an error: as many as fit into a line or two.
MAX_SHOWN_QUERIES = 20


class QueryUnknown(Rejected):
    """The state machine has no query of this name.

    `known` are some of the names that it has. A retry is useless, unless the group is being
    upgraded to a program that has it.
    """

    retry_useless = True

    query: str
    known: list[str]

    def _text(self) -> str:
        if not self.known:
            return (
                f"the state machine has no query {self.query!r}: mark methods by @dledger.query, "
                "on every member"
            )
        return f"the state machine has no query {self.query!r}; it has {', '.join(self.known)}"


class QueryFailed(Rejected):
    """The method of the state machine raised. The member goes on, and has the traceback in its log.

    `problem` is the class of the error and the beginning of its text.
    """

    query: str
    problem: str
    _template = "the query {query!r} raised {problem}"


class QueryInvalid(Rejected):
    """Arguments or a result that are not plain values, or too large."""

    retry_useless = True

    query: str
    problem: str
    _template = "the query {query!r}: {problem}"


class OperationUnknown(Rejected):
    """The member runs a version of this library that does not know the request."""

    retry_useless = True

    member: str
    operation: str
    _template = (
        "{member} does not know the request {operation!r}: it runs an earlier version of this "
        "library; upgrade it, or ask another member"
    )


class TooManyWaiting(Rejected):
    """A client has as many waiting requests as one connection may have."""

    waiting: int
    _template = "{waiting} requests of this connection wait already: let some end, or open another"
