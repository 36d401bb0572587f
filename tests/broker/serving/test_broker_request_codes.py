"""The table of request codes says what is answered."""

from __future__ import annotations

from pathlib import Path

from broker.serving.not_here import NOT_HERE
from docs._ext.request_codes import PAGE, answered_by, page_with, rows_of
from nameserver.processors import Processors
from nameserver.routes import RouteTable
from nameserver.settings import SettingTable
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.one_broker import running_broker, served


async def test_the_page_says_what_answers_each_code(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        folders = answered_by(broker)
        assert folders.keys() == broker.requests.handlers.keys()
    page = PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, rows_of(folders)), "python -m docs._ext.request_codes"


async def test_each_code_has_an_answer_or_a_reason_and_none_has_both(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _nursery):
        answered = broker.requests.handlers.keys()
    codes = {int(code) for code in RequestCode}
    assert answered | NOT_HERE.keys() == codes
    assert answered & NOT_HERE.keys() == set()
    for_nameservers = {code for code, why in NOT_HERE.items() if "name servers" in why}
    assert for_nameservers == set(Processors(RouteTable(), SettingTable()).table.codes())


async def test_a_code_that_is_not_answered_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with served(tmp_path) as client:
        told = await client.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
        assert told.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        why = "a static topic spreads one queue over brokers, and moves it by hand"
        assert told.remark == f" request type 513 not supported: {why}"
        told = await client.ask(4711)
        assert told.remark == " request type 4711 not supported"
