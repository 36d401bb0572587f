"""The instructions that tests count."""

from __future__ import annotations

import threading

from bench.costs.loop_holds import Instructions


def test_the_first_call_of_a_function_counts_as_much_as_the_next() -> None:
    def add_up(numbers: int) -> int:
        return sum(number * number for number in range(numbers))

    def counted(numbers: int) -> int:
        counter = Instructions()
        with counter.counting():
            add_up(numbers)
        return counter.count

    first = counted(10)
    assert first == counted(10)
    assert counted(1000) > 50 * first


def test_the_instructions_of_another_thread_are_not_counted() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        begun.wait()
        sum(number * number for number in range(1000))
        ended.set()

    other = threading.Thread(target=work)
    other.start()
    counter = Instructions()
    with counter.counting():
        begun.set()
        ended.wait()
    other.join()
    assert counter.count < 1000
