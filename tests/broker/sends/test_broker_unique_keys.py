"""Messages without a key are given one, as RocketMQ's broker does it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.sends.unique_keys import UniqueKeys
from remoting.message.message_id import unique_message_key
from remoting.message.properties import UNIQUE_KEY, edit_properties, has_pair, name_mark
from remoting.net.address import Address

RUNS = st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"UNIQ_KEY", b"TAGS"])).map(b"".join)


@given(RUNS, st.integers(0, 2**17), st.lists(st.integers(0, 2**42), min_size=1, max_size=3))
def test_a_run_gets_the_pair_that_an_edit_gives_it(
    run: bytes, before: int, times_ms: list[int]
) -> None:
    if has_pair(run, name_mark(UNIQUE_KEY)):
        return
    clock = [0]
    keys = UniqueKeys(Address("192.0.2.7", 10911), 70_000, lambda: clock[0])
    keys._counter = before
    for number, clock[0] in enumerate(times_ms, before + 1):
        key = unique_message_key("192.0.2.7", 70_000, 10911, clock[0], number)
        assert keys.add(run) == edit_properties(run, {UNIQUE_KEY: key})


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::7"])
def test_no_two_messages_of_a_batch_get_the_same_key(host: str) -> None:
    keys = UniqueKeys(Address(host, 1), 1, lambda: 5_000)
    assert len({keys.add(b"") for _ in range(10_000)}) == 10_000
