"""A client cannot make a server write without end."""

import logging

import pytest

from remoting.net import bounded_log
from remoting.net.bounded_log import LINES_A_PERIOD, PERIOD_S, BoundedLog, about_client


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(text: str, *values: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("a", level, "a.py", 1, text, values, None)


def test_warnings_of_one_kind_are_left_out_and_counted() -> None:
    clock = Clock()
    bounded = BoundedLog(clock)
    passed = [bounded.filter(record("%s refused", number)) for number in range(100)]
    assert passed == [True] * LINES_A_PERIOD + [False] * (100 - LINES_A_PERIOD)
    assert bounded.filter(record("%s closed", 1))
    clock.now = PERIOD_S
    last = record("%s refused", "100 %d")
    assert bounded.filter(last)
    assert last.getMessage() == "100 %d refused (80 lines like it were left out)"
    after = record("%s refused", 101)
    assert bounded.filter(after)
    assert after.getMessage() == "101 refused"


def test_errors_and_news_are_never_left_out() -> None:
    bounded = BoundedLog(Clock())
    for level in (logging.ERROR, logging.INFO):
        assert all(bounded.filter(record("x", level=level)) for _ in range(100))


def of_client(host: str, number: int) -> logging.LogRecord:
    made = record("%s of %s refused", number, host)
    vars(made).update(about_client(host))
    return made


def test_each_client_has_one_warning_a_minute_and_the_next_counts_the_others() -> None:
    clock = Clock()
    bounded = BoundedLog(clock)
    assert [bounded.filter(of_client("10.0.0.1", number)) for number in range(1000)].count(
        True
    ) == 1
    assert bounded.filter(of_client("10.0.0.2", 1)), "another client has a line of its own"
    clock.now = PERIOD_S
    last = of_client("10.0.0.1", 1000)
    assert bounded.filter(last)
    assert last.getMessage() == "1000 of 10.0.0.1 refused (999 lines like it were left out)"
    other = of_client("10.0.0.2", 2)
    assert bounded.filter(other)
    assert other.getMessage() == "2 of 10.0.0.2 refused"


def test_many_clients_have_the_lines_of_one_kind_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_log, "MAX_CLIENTS", 30)
    clock = Clock()
    bounded = BoundedLog(clock)
    passed = [bounded.filter(of_client(f"10.0.0.{number}", number)) for number in range(100)]
    assert passed.count(True) == LINES_A_PERIOD
    assert len(bounded._clients) == 30
    clock.now = PERIOD_S
    last = of_client("10.0.0.200", 200)
    assert bounded.filter(last)
    assert last.getMessage().endswith("(80 lines like it were left out)")
