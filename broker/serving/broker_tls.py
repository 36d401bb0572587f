"""The certificates of one broker: for its clients, for name servers, and for clients passed on."""

import logging

from broker.config import BrokerConfig
from dledger import DLedgerError, Node
from remoting.net.tls import ClientTls, MemberTls, ServerTls
from remoting.net.tls_config import TlsMode
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)


class BrokerTls:
    """What a broker speaks on each side. Raises ConfigInvalid: files cannot be used.

    Attributes:
        server: with clients; None for plain connections.
        client: with name servers; None for plain connections.
        members: with the leader that a client is passed on to; None for plain connections.
    """

    def __init__(self, config: BrokerConfig, node: Node) -> None:
        self._node = node
        self._has_files = config.tls is not None
        self.server: ServerTls | None = None
        self.client: ClientTls | None = None
        self.members: MemberTls | None = None
        if config.tls is None or config.tls.mode is TlsMode.DISABLED:
            return
        if config.log_tls is not None:
            self.members = MemberTls(config.log_tls, self._is_member)
        self.server = ServerTls(config.tls, self.members)
        if config.client_tls is not None:
            self.client = ClientTls(config.client_tls)

    def _is_member(self, names: frozenset[str]) -> bool:
        return not names.isdisjoint(self._node.status().members.addresses)

    def reload(self) -> None:
        """Read all files again, for new connections. Those that cannot be used are logged."""
        if not self._has_files:
            return
        try:
            self._node.reload_tls()
            for side in (self.server, self.client):
                if side is not None:
                    side.reload()
        except DLedgerError as error:
            _log.error("the old certificates stay in use: %s", quoted(error))
        else:
            _log.warning("certificates were read again")
