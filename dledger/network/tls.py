"""Mutual TLS between members, and between members and tools.

Everybody shows a certificate that one of the group's authorities signed. A member's certificate
names its node id as a DNS name: whoever dials a member checks that, and so does a member whom
another one calls. Nothing older than TLS 1.3: all parties are ours.

A name is compared as it is, letter by letter. The rules for names of web servers (patterns,
addresses, upper and lower case) have no business here, and a node id need not be a host name.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping

import trio

from dledger.errors import ConfigInvalid, MessageMalformed
from dledger.network.tls_config import TlsConfig

SecureStream = trio.SSLStream[trio.abc.Stream]
Stream = trio.abc.Stream  # of a network, or a SecureStream over one

# Whoever does not believe a certificate ends the connection; the other side hears only that.
ENDED_EARLY = (
    "the connection ended early: that side's log says whether our certificate is believed there"
)


class TlsRefused(MessageMalformed):
    """The other side of a connection does not speak TLS, or is not proven to be who it should."""


class GroupTls:
    """The contexts of one node or tool. Raises ConfigInvalid for files that cannot be used.

    Attributes:
        config: the files.
        generation: how many times they were read again.
    """

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self.generation = 0
        self._client, self._server = _contexts(config)

    def reload(self, names: Iterable[str] = ()) -> None:
        """Read the files again. Connections that are open keep what they began with.

        Raises ConfigInvalid, and goes on with what was read before. `names`: see `check_names`.
        """
        contexts = _contexts(self.config)
        _check_names(self.config, contexts, names)
        self._client, self._server = contexts
        self.generation += 1

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ConfigInvalid unless the others would believe that we are each of these."""
        _check_names(self.config, (self._client, self._server), names)

    async def dialled(self, stream: trio.abc.Stream, node_id: str) -> SecureStream:
        """A connection to a member that has proven to be `node_id`. Raises TlsRefused.

        How long that may take is the caller's to say, and `stream` is the caller's to close.
        """
        secure = trio.SSLStream(stream, self._client, https_compatible=True)
        await _shake_hands(secure, f"no TLS: {ENDED_EARLY}, or whether TLS is spoken at all")
        names = names_shown(secure)
        if node_id not in names:
            raise TlsRefused(f"its certificate is that of {_listed(names)}, not of {node_id}")
        return secure

    async def accepted(self, stream: trio.abc.Stream) -> SecureStream:
        """A connection of somebody who has proven to be of the group. As `dialled`."""
        # Frames say how long they are, so nothing is lost where a stream is cut off without the
        # last message of TLS; and closing waits for nobody.
        secure = trio.SSLStream(stream, self._server, server_side=True, https_compatible=True)
        await _shake_hands(secure, "it ended the connection: does it believe our certificate?")
        return secure


def group_tls(tls: GroupTls | TlsConfig | None) -> GroupTls | None:
    """The contexts for these files. Raises ConfigInvalid."""
    return GroupTls(tls) if isinstance(tls, TlsConfig) else tls


def names_shown(stream: SecureStream) -> frozenset[str]:
    """The DNS names in the certificate that the other side has shown."""
    return _dns_names(stream.getpeercert())


def _dns_names(certificate: Mapping[str, object] | None) -> frozenset[str]:
    names = (certificate or {}).get("subjectAltName", ())
    assert isinstance(names, tuple)
    return frozenset(name for kind, name in names if kind == "DNS")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "nobody"


async def _shake_hands(stream: SecureStream, ended: str) -> None:
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        raise TlsRefused(_problem(error.__cause__, ended)) from error


def _problem(cause: BaseException | None, ended: str) -> str:
    """What went wrong in a handshake, for people; `ended` if it is that the connection did."""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed: {cause.verify_message}"
        case ssl.SSLEOFError() | ConnectionError():
            return ended
        case ssl.SSLError(reason="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            return "it showed no certificate"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST"):
            return "it does not speak TLS: give certificates to all of the group, or to nobody"
        case ssl.SSLError(reason=str(reason)):
            return f"no TLS: {reason.lower().replace('_', ' ')}"
        case _:
            return f"no TLS: {cause or 'the connection broke'}"


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


def _contexts(config: TlsConfig) -> Contexts:
    try:
        client = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(config.authorities))
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(config.authorities))
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(
            "tls.authorities", f"{config.authorities} cannot be used: {error}"
        ) from error
    client.check_hostname = False  # `dialled` compares the name
    client.verify_mode = server.verify_mode = ssl.CERT_REQUIRED
    # Nobody comes back without showing a certificate.
    server.num_tickets = 0
    for context in (client, server):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            context.load_cert_chain(config.certificate, config.key, password=_no_password)
        except (OSError, ssl.SSLError, _KeyHasPassword) as error:
            raise ConfigInvalid(
                "tls.certificate, tls.key",
                f"{config.certificate} and {config.key} cannot be used: {error}",
            ) from error
    return client, server


class _KeyHasPassword(Exception):
    pass


def _no_password() -> str:
    raise _KeyHasPassword("the key has a password; store it without one, readable by nobody else")


def _check_names(config: TlsConfig, contexts: Contexts, names: Iterable[str]) -> None:
    wanted = frozenset(names)
    if not wanted:
        return
    shown = _shown_to_ourselves(config, contexts)
    if not wanted <= shown:
        raise ConfigInvalid(
            "tls.certificate",
            f"{config.certificate} is that of {_listed(shown)}, not of {_listed(wanted - shown)}: "
            "name every member that runs here in it, as DNS names",
        )


def _shown_to_ourselves(config: TlsConfig, contexts: Contexts) -> frozenset[str]:
    """The names in our certificate, which we show to ourselves as we will to the others.

    So a member whose certificate nobody would believe says so when it starts. Raises ConfigInvalid.
    """
    client, server = contexts
    to_caller, to_called = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_caller, to_called)
    called = server.wrap_bio(to_called, to_caller, server_side=True)
    try:
        # Each in turn: a greeting, an answer with a certificate, another certificate, its check.
        for side in (caller, called, caller, called):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else error
        raise ConfigInvalid(
            "tls.certificate",
            f"{config.certificate} would not be believed by {config.authorities}: {why}",
        ) from error
    return _dns_names(caller.getpeercert())
