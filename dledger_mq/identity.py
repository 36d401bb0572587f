"""The identity of a client, as brokers and operators see it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A client's name.

    Attributes:
        host: the numeric address of this machine toward its name servers.
        process_id: this process.
        instance: a number of the client in its process.
    """

    host: str
    process_id: int
    instance: int

    @property
    def client_id(self) -> str:
        """The id by which brokers know the client: "host@process#instance"."""
        return f"{self.host}@{self.process_id}#{self.instance}"
