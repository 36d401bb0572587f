"""The addresses of the name servers, as users write them."""

from collections.abc import Sequence

from dledger_mq.errors import InvalidNameServers
from remoting.net.address import parse_address
from remoting.net.errors import AddressMalformed


def read_nameservers(given: str | Sequence[str]) -> tuple[str, ...]:
    """The addresses, each "host:port".

    Args:
        given: several addresses, or one text with semicolons between them, which is how RocketMQ
            writes them (NAMESRV_ADDR).

    Raises:
        InvalidNameServers: there is none, or one is no address.
    """
    parts = given.split(";") if isinstance(given, str) else given
    addresses: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise InvalidNameServers(f"{part!r:.80} is not a text: write host:port")
        if isinstance(given, str) and not part.strip():
            continue  # "a:1;b:2;" has two
        try:
            parse_address(part)
        except AddressMalformed as error:
            raise InvalidNameServers(str(error)) from None
        addresses.append(part.strip())
    if not addresses:
        raise InvalidNameServers('none is given: pass nameservers=["host:9876"], or client=')
    return tuple(addresses)
