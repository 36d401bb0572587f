"""What a journal of a load amounts to."""

from tests.clients.gap_tally import Gap
from tests.clients.loss_tally import LossTally, Promise, tally


def judged(*lines: str, promises: tuple[Promise, ...] = ()) -> LossTally:
    return tally(lines, promises, fault_ms=100, end_ms=1000)


def took(
    key: str,
    at: int,
    place: str = "0/0",
    reader: str = "one",
    *,
    work_us: int = 10,
    verdict: str = "ok",
    copy: int = 0,
) -> str:
    return f"took {key} {at} {place} {reader} {at * 1000} {at * 1000 + work_us} {verdict} {copy}"


def test_what_was_acknowledged_and_did_not_come_is_lost() -> None:
    result = judged("reader one", "acked a 200", "acked b 300", "failed c 400 why", took("a", 210))
    assert (result.acknowledged, result.refused) == (2, 1)
    assert (result.delivered, result.lost) == (1, 1)
    assert (result.send_gap, result.consume_gap) == (Gap(700, True), Gap(790, True))


def test_what_came_and_was_not_consumed_is_lost_unless_it_is_a_dead_letter() -> None:
    failed = took("a", 210, verdict="again")
    assert judged("reader one", "acked a 200", failed).lost == 1
    assert judged("reader one", "acked a 200", failed, "buried a 0/7").lost == 0
    assert judged("reader one", "acked a 200", failed, took("a", 300, "1/0", copy=1)).lost == 0


def test_each_reader_of_a_broadcast_must_get_everything() -> None:
    both = ("reader one", "reader two", "acked a 200")
    result = judged(*both, took("a", 210), took("a", 220, reader="two"))
    assert (result.delivered, result.lost, result.delivered_twice) == (2, 0, 0)
    assert judged(*both, took("a", 210), took("a", 220)).lost == 1
    assert judged(*both, took("a", 210), took("a", 220)).delivered_twice == 1


def test_readers_that_share_what_comes_lose_nothing_to_one_another() -> None:
    result = judged("reader all", "acked a 1", "acked b 2", took("a", 3), took("b", 4, reader="x"))
    assert result.lost == 0


def test_copies_of_repeated_sends_are_told_from_second_deliveries_and_repeats() -> None:
    result = judged(
        "reader one",
        "acked a 200",
        took("a", 210, "0/0", verdict="again"),
        took("a", 220, "0/0", verdict="again"),
        took("a", 230, "1/0", verdict="again"),
        took("a", 240, "2/0", copy=1),
    )
    assert (result.stored_twice, result.delivered_twice) == (1, 1)


def test_a_message_may_come_when_its_first_attempt_was_due_and_not_before() -> None:
    told = ("acked a 120", "from a 400", "from a 500", "reader one")
    assert judged(*told, took("a", 400)).faults == []
    assert judged(*told, took("a", 399)).faults == ["a came 1 ms early"]


def test_a_message_that_was_rolled_back_must_not_come() -> None:
    result = judged("reader one", "never a", "acked a 150", took("a", 200))
    assert result.faults == ["a came and must not"]
    assert judged("reader one", "never a", "acked a 150").lost == 0


def test_a_half_message_is_not_seen_before_its_commit_and_is_committed_once() -> None:
    told = ("reader one", "acked a 150", "from a 140")
    of_half = [took("a", 200, "0/0", copy=77), took("a", 210, "0/1", copy=77)]
    other_half = [took("a", 200, "0/0", copy=77), took("a", 210, "0/1", copy=99)]
    twice = judged(*told, *of_half, promises=("permission",))
    assert twice.faults == ["a was committed twice"]
    repeated = judged(*told, *other_half, promises=("permission",))
    assert (repeated.faults, repeated.stored_twice) == ([], 0)
    early = judged("reader one", took("a", 200), promises=("permission",))
    assert early.faults == ["a came before it was committed"]


def test_each_account_comes_in_order_and_may_step_back() -> None:
    calls = [took(f"k-{n}", 200 + at, f"0/{n}") for at, n in enumerate([0, 4, 8, 4, 8, 12])]
    assert judged(*calls, promises=("order",)).faults == []
    skipped = [took("k-0", 200), took("k-8", 300, "0/2"), took("k-4", 400, "0/1")]
    assert judged(*skipped, promises=("order",)).faults == ["k-8 came behind number 0"]


def test_two_calls_of_one_queue_at_one_time_are_told() -> None:
    first, second = took("k-0", 200, "0/0", work_us=900), took("k-4", 201, "0/1", "two")
    assert judged(first, second, promises=("order",)).faults == []
    first = took("k-0", 200, "0/0", work_us=1100)
    told = "two took k-4 100 us before one had done k-0"
    assert judged(first, second, promises=("order",)).faults == [told]
    elsewhere = took("k-1", 201, "1/0", "two")
    assert judged(first, elsewhere, promises=("order",)).faults == []


def test_the_last_consumer_gets_nothing_that_others_have_committed() -> None:
    last = took("a", 900, reader="last")
    told = judged("reader all", took("a", 210), last, promises=("last gets nothing",))
    assert told.faults == ["a came after its commit"]


def test_a_second_dead_letter_of_a_message_is_a_copy() -> None:
    result = judged("reader one", "acked a 150", "buried a 0/1", "buried a 0/2", "buried a 0/2")
    assert (result.lost, result.stored_twice, result.faults) == (0, 1, [])


def test_the_longest_wait_is_from_when_a_message_was_due_until_it_was_consumed() -> None:
    told = ("reader one", "acked a 150", "from a 700", "acked b 200")
    calls = (took("a", 750), took("b", 230, "1/0", verdict="again"), took("b", 290, "2/0", copy=1))
    assert judged(*told, *calls).longest_wait_ms == 90


def test_faults_that_a_load_saw_itself_are_told() -> None:
    assert judged("wrong an offset went back").faults == ["an offset went back"]
