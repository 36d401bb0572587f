"""The gap meter's arithmetic."""

from tests.clients.gap_tally import Gap, Tally, longest_gap, tally


def test_a_gap_before_the_fault_does_not_count() -> None:
    assert longest_gap([0, 5_000, 5_100, 5_400, 5_500], 5_100, 5_500) == Gap(300)


def test_a_gap_begins_with_the_last_event_before_the_fault() -> None:
    assert longest_gap([100, 200, 900, 1_000], 500, 1_000) == Gap(700)


def test_a_gap_that_never_ends_is_open_at_the_senders_end() -> None:
    assert longest_gap([100, 200], 300, 10_200) == Gap(10_000, is_open=True)


def test_a_gap_that_ends_after_the_senders_end_is_counted_whole() -> None:
    assert longest_gap([100, 200, 15_200], 300, 10_200) == Gap(15_000)


def test_a_pause_that_begins_after_the_senders_end_does_not_count() -> None:
    assert longest_gap([100, 200, 300, 9_000], 150, 300) == Gap(100)


def test_a_client_that_did_nothing_has_a_gap_of_the_whole_time() -> None:
    assert longest_gap([], 1_000, 4_000) == Gap(3_000, is_open=True)


def test_losses_and_both_kinds_of_repeats_are_told_apart() -> None:
    sent = [
        "acked a 100",
        "failed b 150 timed out after 3 s",
        "acked b 200",
        "acked c 300",
        "acked d 400",
        "the client says something of its own",
    ]
    taken = [
        "ready",
        "took a 110 0/0",
        "took b 160 1/0",
        "took b 210 2/0",
        "took d 410 3/0",
        "took d 450 3/0",
        "took e 460 0/1",
        "took f 470 1/1",
    ]
    assert tally(sent, taken, fault_ms=100, end_ms=400) == Tally(
        send_gap=Gap(100),
        consume_gap=Gap(200),
        acknowledged=4,
        refused=1,
        lost=1,
        stored_twice=1,
        delivered_twice=1,
    )
