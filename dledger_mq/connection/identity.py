"""The identity of a client, for brokers and operators."""

from dataclasses import dataclass
from typing import Final

from dledger_mq.errors import InvalidClientId

# Brokers keep the id in the log with the client's locks.
_MAX_CHARACTERS: Final = 255


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's identity.

    Attributes:
        host: this machine's numeric address toward the name servers.
        instance: 64 random bits. Containers may have equal addresses and process ids, so host and
            process id do not tell clients apart.
        given: the id that the program has chosen, or None.
    """

    host: str
    process_id: int
    instance: int
    given: str | None = None

    @property
    def client_id(self) -> str:
        if self.given is not None:
            return self.given
        return f"{self.host}@{self.process_id}#{self.instance:016x}"


def check_client_id(client_id: str) -> None:
    """Raises InvalidClientId: it is empty, too long or not printable."""
    given: object = client_id
    if (
        not isinstance(given, str)
        or not 0 < len(client_id) <= _MAX_CHARACTERS
        or not client_id.isprintable()
    ):
        raise InvalidClientId(client_id)
