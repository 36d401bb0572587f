"""The certificates of one broker: for its clients, for name servers, and for clients passed on."""

from broker.config import BrokerConfig
from dledger import Node
from remoting.net.tls import ClientTls, MemberTls, reload_or_tell, server_tls
from remoting.net.tls_config import TlsMode


class BrokerTls:
    """What a broker speaks on each side. Raises ConfigInvalid: files cannot be used.

    Attributes:
        server: with clients; None for plain connections.
        client: with name servers; None for plain connections.
        members: with the leader that a client is passed on to; None for plain connections.
    """

    def __init__(self, config: BrokerConfig, node: Node) -> None:
        self._node = node
        is_plain = config.tls is None or config.tls.mode is TlsMode.DISABLED
        log_tls, client_tls = config.log_tls, config.client_tls
        self.members = None if is_plain or log_tls is None else MemberTls(log_tls, self._is_member)
        self.server = server_tls(config.tls, self.members)
        self.client = None if client_tls is None else ClientTls(client_tls)

    def _is_member(self, names: frozenset[str]) -> bool:
        return not names.isdisjoint(self._node.status().members.addresses)

    def reload(self) -> None:
        """Read the files again, for new connections; it is logged if they cannot be used. `client`
        does that by itself.
        """
        server = () if self.server is None else (self.server.reload,)
        reload_or_tell((self._node.reload_tls, *server))
