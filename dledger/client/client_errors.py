"""The errors of a group's client, and the errors that members answer."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import get_origin, get_type_hints

from dledger import errors, query_errors, watch_errors
from dledger.core.membership import change_errors
from dledger.errors import Discarded, OutcomeUnknown, Rejected
from dledger.sessions import session_errors

AnsweredError = Rejected | Discarded | OutcomeUnknown


class GroupUnreachable(Rejected):
    """No member could be reached, or none of them leads; nothing was appended."""

    problem: str
    _template = "{problem}; check that the nodes run and that the addresses are right"


class ClientRefused(GroupUnreachable):
    """All members that were asked refuse this client, until a setting is changed.

    Reasons are another protocol or version, TLS on one side only, or a certificate that is not
    trusted. Calls raise it at once; a retry is useless.
    """

    retry_useless = True
    _template = "{problem}; a retry is useless until that is changed"


class CredentialsRefused(ClientRefused):
    """The group asks for users, and this client has not proven that it is one of them.

    It has no credentials, or those of a user that is unknown, or a wrong secret: the members say
    no more. Calls raise it at once.
    """

    _template = "{problem}; a retry is useless until the credentials are those of a user"


class WrongGroup(ClientRefused):
    """Members of other groups listen at the addresses.

    Attributes:
        group: the group that was asked for.
        found: the groups whose members listen there, three of each process at most.
    """

    group: str
    found: tuple[str, ...]


def refused_by_all(refusals: Sequence[ClientRefused]) -> ClientRefused:
    problem = "; ".join(dict.fromkeys(refusal.problem for refusal in refusals))
    if all(isinstance(refusal, CredentialsRefused) for refusal in refusals):
        return CredentialsRefused(problem)
    wrong = [refusal for refusal in refusals if isinstance(refusal, WrongGroup)]
    if len(wrong) < len(refusals):
        return ClientRefused(problem)
    found = dict.fromkeys(group for refusal in wrong for group in refusal.found)
    return WrongGroup(problem, wrong[0].group, tuple(found))


class TooManyBodies(Rejected):
    """The bodies exceed the limit of one request. Nothing was appended."""

    retry_useless = True

    bodies: int
    total_bytes: int
    limit: int
    limit_bytes: int
    _template = (
        "{bodies} bodies of {total_bytes} bytes; one call takes {limit} of {limit_bytes} bytes: "
        "make several calls"
    )


class ConnectionLost(OutcomeUnknown):
    """The connection broke, or its member lost leadership, while a request was in flight."""

    node_id: str
    reason: str = "the connection broke"
    _template = (
        "{node_id} did not answer ({reason}); read the log to learn what became of the append, or "
        "use a session"
    )


class AnswerOverdue(OutcomeUnknown):
    """The time limit passed before the answer came."""

    timeout_s: float
    _template = (
        "no answer within {timeout_s:g} s; read the log to learn what became of the append, or use "
        "a session"
    )


class AnswerUnreadable(OutcomeUnknown):
    """A member's answer cannot be read."""

    problem: str
    _template = "a member's answer cannot be read: {problem}; are all of one version?"


class RefusedByNode(Rejected):
    """A member refused with an error that this version does not know. `name` is its class."""

    name: str
    fields: Mapping[str, object]
    text: str
    _template = "{text}"


class UnknownToNode(OutcomeUnknown):
    """A member failed with an error that leaves the outcome unknown. `name` is its class."""

    name: str
    fields: Mapping[str, object]
    text: str
    _template = "{text}"


def answered_error(name: str, fields: Mapping[str, object], text: str) -> AnsweredError:
    """Make an object of the error that a member answered, of its own class if that is known here.

    The answer is not trusted: a missing field, a field of another type, or a class that says
    nothing about the outcome gives RefusedByNode or UnknownToNode.
    """
    kind = _KINDS.get(name)
    if kind is not None:
        known, hints = kind
        if all(field in fields and _fits(fields[field], hint) for field, hint in hints.items()):
            error: AnsweredError = known(**{field: fields[field] for field in hints})
            return error
    kind_unknown = RefusedByNode if fields.get("retry_safe") is True else UnknownToNode
    return kind_unknown(name, fields, text)


def _fits(value: object, hint: object) -> bool:
    if get_origin(hint) is list:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if hint is int:
        return type(value) is int
    if get_origin(hint) is tuple:
        return False  # errors with such fields never cross the network
    return isinstance(value, hint)  # type: ignore[arg-type]


def _kinds(*modules: ModuleType) -> Iterator[tuple[str, tuple[type, Mapping[str, object]]]]:
    """Yield every class of error that a member may answer, and its fields."""
    for module in modules:
        for name, found in vars(module).items():
            if not inspect.isclass(found) or not issubclass(found, AnsweredError):
                continue
            hints = get_type_hints(found)
            fields: dict[str, object] = {field: hints[field] for field in found.__match_args__}
            yield name, (found, MappingProxyType(fields))


_KINDS = dict(_kinds(errors, session_errors, change_errors, query_errors, watch_errors))
