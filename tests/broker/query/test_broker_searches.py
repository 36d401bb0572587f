"""Searches that wait go with their client, and with the term."""

from __future__ import annotations

from typing import Any, cast

from broker.errors import RequestRefused
from broker.features import empty_state
from broker.query.searches import Search, Searches
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


class Asker:
    """A client, and the answers to it."""

    def __init__(self) -> None:
        self.answers: list[int] = []

    def send(self, reply: Command) -> None:
        self.answers.append(reply.opaque)


def test_only_the_searches_of_a_client_that_has_gone_go_with_it() -> None:
    searches = Searches(empty_state(), cast(Any, None), cast(Any, None))
    stays, goes = Asker(), Asker()
    for number, asker in enumerate((stays, goes, stays, goes)):
        command = Command(12, opaque=number)
        origin = cast(Any, asker)
        searches.add(Search(origin, command, "T", "k", 0, 9, 32, 0, 5.0))
    searches.drop(cast(Any, goes))
    assert [one.command.opaque for one in searches.waiting] == [0, 2]
    searches.end_term(RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "another leads"))
    assert (stays.answers, goes.answers) == ([0, 2], [])
    assert not searches.waiting
