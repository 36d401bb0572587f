"""The identity of a client, as brokers and operators see it."""

from dataclasses import dataclass
from typing import Final

from dledger_mq.errors import InvalidClientId

# Brokers keep it in the log with what the client has locked.
_MAX_CHARACTERS: Final = 255


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's name.

    Attributes:
        host: the numeric address of this machine toward its name servers.
        process_id: this process.
        instance: a number that no other client has: 64 bits by chance. Containers may have one
            address and the same process ids, so these two do not tell clients apart.
        given: the id that the program has given it, or None.
    """

    host: str
    process_id: int
    instance: int
    given: str | None = None

    @property
    def client_id(self) -> str:
        """The id by which brokers know the client: the given one, or "host@process#instance"."""
        if self.given is not None:
            return self.given
        return f"{self.host}@{self.process_id}#{self.instance:016x}"


def check_client_id(client_id: str) -> None:
    """Raises InvalidClientId: brokers and operators could not do with it."""
    if not 0 < len(client_id) <= _MAX_CHARACTERS or not client_id.isprintable():
        raise InvalidClientId(client_id)
