"""A client cannot make a server write without end."""

import logging

from remoting.net.bounded_log import LINES_A_PERIOD, PERIOD_SECONDS, BoundedLog


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
    clock.now = PERIOD_SECONDS
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
