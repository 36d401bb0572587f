"""A broker that only answers: it shows the highest rate of the load on this machine."""

from __future__ import annotations

from pathlib import Path

from bench.brokers.group import NAMESERVER, Addresses, Brokers, Program
from bench.toolchain import ROCKETMQ, Toolchain
from dledger.free_ports import free_addresses
from remoting.message.record import MessageRecord, encode_record

# The answer to every pull, as in the rows that pull.
PULLED_MESSAGES = 32
PULLED_BYTES = 256

KEY = "null"

_MEMBER = "n0"
_TOPIC = "Pulled"


def null_broker(toolchain: Toolchain) -> Brokers:
    """Build a program in C that is name server and broker. Raises Unavailable.

    It acknowledges every message at once, keeps none, and has a message at every offset.
    """
    program = toolchain.c_program(ROCKETMQ / "null_broker" / "null_broker.c")

    def programs(at: Addresses) -> dict[str, Program]:
        pulled = at.folder / "pulled"
        pulled.write_bytes(pulled_messages())
        broker = at.members[_MEMBER]
        return {
            name: Program([str(program), address.rpartition(":")[2], broker, str(pulled)], {})
            for name, address in ((NAMESERVER, at.nameserver), (_MEMBER, broker))
        }

    return Brokers(KEY, "null", "null: the load alone", _addresses, programs)


def pulled_messages() -> bytes:
    """Return records for the answer to a pull. The program fills in queue and offset."""
    return encode_record(MessageRecord(_TOPIC, bytes(PULLED_BYTES))) * PULLED_MESSAGES


def _addresses(folder: Path) -> Addresses:
    nameserver, member = free_addresses(2)
    return Addresses(folder, nameserver, {_MEMBER: member}, {})
