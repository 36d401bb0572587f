from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.queue_shares import allocate_averagely, readers_of


def queues(count: int) -> list[MessageQueue]:
    return [MessageQueue("T", "a", number) for number in range(count)]


@pytest.mark.parametrize(
    ("queue_count", "shares"),
    [
        (8, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, [[0, 1], [2, 3]]),
        (4, [[0, 1, 2, 3]]),
        (2, [[0], [1], [], []]),
        (0, [[], []]),
        (7, [[0, 1], [2, 3], [4, 5], [6]]),
    ],
)
def test_neighbours_go_to_one_member_and_the_first_members_have_more(
    queue_count: int, shares: list[list[int]]
) -> None:
    members = [f"m{number}" for number in range(len(shares))]
    for member, share in zip(members, shares, strict=True):
        given_queues = allocate_averagely(member, queues(queue_count), members)
        assert [queue.queue_id for queue in given_queues] == share


def test_a_client_that_is_no_member_reads_nothing() -> None:
    assert allocate_averagely("x", queues(4), ["a", "b"]) == []


def test_without_members_no_queue_has_a_reader() -> None:
    assert readers_of(queues(3), []) == {}


names = st.text("abc", min_size=1, max_size=3)


@given(
    st.lists(st.builds(MessageQueue, names, names, st.integers(0, 20)), max_size=60),
    st.lists(names, min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_every_queue_has_exactly_one_reader_whatever_the_order_of_the_lists(
    some_queues: list[MessageQueue], members: list[str], shuffler: Random
) -> None:
    by_queue = readers_of(some_queues, members)
    assert set(by_queue) == set(some_queues)
    readers: Counter[MessageQueue] = Counter()
    lengths: list[int] = []
    for member in set(members):
        shuffler.shuffle(some_queues)
        shuffler.shuffle(members)
        share = allocate_averagely(member, some_queues, members)
        readers.update(share)
        assert share == sorted(queue for queue, reader in by_queue.items() if reader == member)
        lengths.append(len(share))
    assert readers == Counter(set(some_queues))
    assert max(lengths) - min(lengths) <= 1
