"""The bytes that a hostile client writes on a connection. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jepsen_like.chance import Chance
from remoting.wire.codes import RequestCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import encode_command

FRAMES_A_WRITE = 1_000
TOPIC, GROUP = "hostile", "hostile-readers"
LONG_FIELD = 30_000
# Numbers at the ends of their types and beyond them, and texts that are not numbers.
NUMBERS = ("-1", "-5", "2147483647", "-2147483648", "9" * 5_000, "1_000", "NaN", "")
# Each frame has one of these codes, with the few fields that a stranger knows.
CODES = tuple(code for code in RequestCode)
KEY_END, PAIR_END = "\x01", "\x02"


def repeated_code(chance: Chance) -> bytes:
    """Return a thousand requests of one code; the client does not read the answers."""
    fields = {"topic": TOPIC, "consumerGroup": GROUP, "group": GROUP, "queueId": "0"}
    command = Command(int(chance.choice(CODES)), fields, b"")
    return encode_command(command) * FRAMES_A_WRITE


def one_way_heartbeats(chance: Chance) -> bytes:
    """Return two thousand one-way heartbeats in a write of a few frames' size."""
    body = f'{{"clientID":"hostile-{chance.randrange(1_000)}"}}'.encode()
    command = Command(RequestCode.HEART_BEAT, {}, body, flag=ONEWAY_FLAG)
    return encode_command(command) * (2 * FRAMES_A_WRITE)


def odd_sends(chance: Chance) -> bytes:
    """Return sends with numbers and runs of properties that no client writes."""
    runs = (
        f"XUNIQ_KEY{KEY_END}a{PAIR_END}",
        f"TAGS{KEY_END}a{PAIR_END}TAGS{KEY_END}b{PAIR_END}",
        f"CHECK_IMMUNITY_TIME_IN_SECONDS{KEY_END}{'9' * 5_000}{PAIR_END}",
        PAIR_END * 1_000,
        f"{KEY_END}{PAIR_END}" * 100,
    )
    fields = {
        "producerGroup": GROUP,
        "topic": TOPIC,
        "queueId": chance.choice(("0", *NUMBERS)),
        "reconsumeTimes": chance.choice(NUMBERS),
        "bornTimestamp": "0",
        "sysFlag": "0",
        "flag": "0",
        "properties": chance.choice(runs),
    }
    return encode_command(Command(RequestCode.SEND_MESSAGE, fields, b"x")) * 50


def huge_fields(chance: Chance) -> bytes:
    """Return a request with a long client id, and a header that is nearly all one field."""
    fields = {"topic": "t" * LONG_FIELD, "consumerGroup": "g\n" * LONG_FIELD, "clientId": "c"}
    return encode_command(Command(int(chance.choice(CODES)), fields, b""))


def garbage(chance: Chance) -> bytes:
    """Return bytes that are no frame, or the begin of one that is too long or never ends."""
    lengths = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x10\x00\x00")
    return chance.choice(lengths) + chance.randbytes(chance.randint(0, 4_096))


ATTACKS: Mapping[str, Callable[[Chance], bytes]] = {
    "repeated-code": repeated_code,
    "one-way-heartbeats": one_way_heartbeats,
    "odd-sends": odd_sends,
    "huge-fields": huge_fields,
    "garbage": garbage,
}
