"""Keys that rotate: each is used for a while and then left, so that checking stays quick."""

from __future__ import annotations

from jepsen_like.chaos.service import Caller

# Keys in use at the same time, and calls on each before it is left: the search for an order is
# exponential in what runs at once on one key, and in the calls of unknown outcome.
KEYS_AT_ONCE = 5
CALLS_A_KEY = 60
# Some keys live through several faults, as members may remember old values of them. They get a
# small share of the calls.
LONG_SHARE = 0.15
LONG_KEYS_AT_ONCE = 2
LONG_ROUND_CALLS = 3_000


def rotating_key(
    caller: Caller, keys_at_once: int = KEYS_AT_ONCE, calls_a_key: int = CALLS_A_KEY
) -> str:
    """Return the key of the next call, as `12-3`: the round, and one of the keys of that round."""
    if caller.random.random() < LONG_SHARE:
        rounds, place = (
            caller.number // LONG_ROUND_CALLS,
            caller.random.randrange(LONG_KEYS_AT_ONCE),
        )
        return f"long-{rounds}-{place}"
    rounds = caller.number // (keys_at_once * calls_a_key)
    return f"{rounds}-{caller.random.randrange(keys_at_once)}"
