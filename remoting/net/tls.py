"""TLS of servers and clients. Members of one group prove themselves as on the log's own port.

A client's certificate shows names: the DNS names in it (subjectAltName), or, if there are none, the
common name of its subject. Access control knows clients by them.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import trio

from dledger.errors import ConfigInvalid
from dledger.network.secure_stream import SecureStream
from dledger.network.tls import (
    CertificateUnusable,
    GroupTls,
    TlsRefused,
    accepted_by,
    load_certificate,
    names_shown,
    tls_problem,
)
from dledger.network.tls_config import TlsConfig
from remoting.net.relayed_names import (
    LENGTH_BYTES,
    NamesMalformed,
    decode_names,
    kept_names,
    names_bytes,
)
from remoting.net.tls_config import ClientAuth, ServerTlsConfig, Tls, TlsMode
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

NO_NAMES: Final[frozenset[str]] = frozenset()

_VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}

# What OpenSSL says when the other side's first bytes are no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL")


class Secured(NamedTuple):
    """A connection with a client: its stream, and the names in the client's certificate."""

    stream: trio.abc.Stream
    names: frozenset[str] = NO_NAMES


class MemberTls:
    """How members of a group pass clients on to one another. Raises ConfigInvalid.

    Args:
        config: the certificates of the group's members.
        is_member: returns whether one of these names is that of a member.
    """

    def __init__(self, config: TlsConfig, is_member: Callable[[frozenset[str]], bool]) -> None:
        self._group = GroupTls(config)
        self._is_member = is_member

    def reload(self) -> None:
        """Read the files again. Raises ConfigInvalid, and keeps the old certificates."""
        self._group.reload()

    async def dialled(self, stream: trio.SocketStream, node_id: str) -> SecureStream:
        """Return a connection with a member that has proven to be `node_id`. Raises TlsRefused."""
        return await self._group.dialled(stream, node_id)

    async def accepted(self, stream: trio.abc.Stream) -> Secured:
        """Return a client that a member passes on, with the names that the member tells.

        Raises TlsRefused.
        """
        secure = await self._group.accepted(stream)
        shown = names_shown(secure)
        if not self._is_member(shown):
            named = ", ".join(sorted(shown)[:3]) or "nobody"
            raise TlsRefused(f"its certificate is that of {named}, and of no member of the group")
        try:
            length = await exactly(secure, LENGTH_BYTES, NamesMalformed)
            names = await exactly(secure, names_bytes(length), NamesMalformed)
            return Secured(secure, decode_names(names))
        except NamesMalformed as error:
            raise TlsRefused(f"it did not say whom it passes on: {error}") from error


class ServerTls:
    """TLS on the same port as plain connections, told apart by the first byte, as in RocketMQ.

    Versions are TLS 1.2, which older clients of Java and C++ speak, and 1.3.

    Args:
        config: files, and which connections are taken. Its mode is not "disabled".
        members: how members of the group pass clients on; None if none do.
        protocols: what is spoken, for clients that ask (ALPN); empty: they are not told.

    Raises ConfigInvalid: the files cannot be used.
    """

    def __init__(
        self,
        config: ServerTlsConfig,
        members: MemberTls | None = None,
        protocols: Sequence[str] = (),
    ) -> None:
        self.config: Final = config
        self._members = members
        self._protocols = protocols
        self._context = _server_context(config, protocols)

    @property
    def required(self) -> bool:
        """Whether plain connections are closed."""
        return self.config.mode is TlsMode.ENFORCING

    def reload(self) -> None:
        """Read the files again, for new connections; open ones go on.

        Raises ConfigInvalid, and keeps the old certificates.
        """
        context = _server_context(self.config, self._protocols)
        if self._members is not None:
            self._members.reload()
        self._context = context

    async def accepted(self, stream: trio.abc.Stream, *, by_member: bool = False) -> Secured:
        """Do the handshake with a client, or with a member that passes a client on.

        Raises TlsRefused. The caller sets the timeout, and closes `stream`.
        """
        if by_member:
            if self._members is None:
                raise TlsRefused("it passes a client on as a member, and no member does that here")
            return await self._members.accepted(stream)
        try:
            secure = await accepted_by(self._context, stream)
        except TlsRefused as error:
            raise _readable(error) from error
        return Secured(secure, client_names(secure.getpeercert()))


class ClientTls:
    """TLS with every server that a client dials. Raises ConfigInvalid: files cannot be used.

    A client may run for long, and gets no signal: it reads its files again when they have changed.
    """

    def __init__(self, config: Tls) -> None:
        self.config: Final = config
        self._seen = self._look()
        self._context = _client_context(config)

    def _look(self) -> list[tuple[int, int, int] | None]:
        files = (self.config.authorities, self.config.certificate, self.config.key)
        return [None if path is None else _looks(path) for path in files]

    def _read_changed(self) -> None:
        """Read changed files, for new connections; those that cannot be used are logged."""
        if (found := self._look()) == self._seen:
            return
        self._seen = found
        try:
            self._context = _client_context(self.config)
        except ConfigInvalid as error:
            _log.warning("the old certificates stay in use: %s", quoted(error, 400))

    async def dialled(self, stream: trio.SocketStream, host: str) -> SecureStream:
        """Return a connection with a server whose certificate names `host`. Raises TlsRefused.

        The caller sets the timeout, and closes `stream`.
        """
        self._read_changed()
        name = self.config.server_name or host
        secure = SecureStream(stream, self._context, server_hostname=name)
        try:
            await secure.do_handshake()
        except trio.BrokenResourceError as error:
            cause = error.__cause__
            raise TlsRefused(_why_no_server(cause)) from error
        return secure


def server_tls(
    config: ServerTlsConfig | None,
    members: MemberTls | None = None,
    protocols: Sequence[str] = (),
) -> ServerTls | None:
    """Return what a server speaks; None if only plain connections. Raises ConfigInvalid."""
    if config is None or config.mode is TlsMode.DISABLED:
        return None
    return ServerTls(config, members, protocols)


def reload_or_tell(reloads: Iterable[Callable[[], None]]) -> None:
    """Have certificates read again; log it, or that the old ones stay in use."""
    try:
        for reload in reloads:
            reload()
    except ConfigInvalid as error:
        _log.error("the old certificates stay in use: %s", quoted(error, 400))
    else:
        _log.warning("certificates were read again")


def client_names(certificate: Mapping[str, object] | None) -> frozenset[str]:
    """Return the names that a certificate shows; none without one. Others than short ones are left
    out.
    """
    if not certificate:
        return NO_NAMES
    shown = certificate.get("subjectAltName", ())
    assert isinstance(shown, tuple)
    names = [name for kind, name in shown if kind == "DNS"]
    if not names:
        subject = certificate.get("subject", ())
        assert isinstance(subject, tuple)
        names = [value for part in subject for kind, value in part if kind == "commonName"]
    return kept_names(names)


def broken(error: Exception) -> str:
    """Say why a connection broke, also one with TLS."""
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLError):
        return tls_problem(cause, f"TLS ended early: {cause.reason or cause}")
    return str(cause)


def _readable(error: TlsRefused) -> TlsRefused:
    """Return the error of a handshake, in the words for a server of any clients."""
    cause = error.__cause__.__cause__ if error.__cause__ is not None else None
    if isinstance(cause, ssl.SSLError) and cause.reason in _NO_TLS:
        return TlsRefused(f"its first byte was that of TLS, and no more: {cause.reason.lower()}")
    return error


def _why_no_server(cause: BaseException | None) -> str:
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed: {cause.verify_message}"
        case ssl.SSLError(reason=str(reason)) if reason in _NO_TLS:
            return "it does not speak TLS there"
        case ssl.SSLError(reason="SSLV3_ALERT_HANDSHAKE_FAILURE"):
            return "it ended the handshake: does it want to see a certificate?"
        case _:
            ended = "it ended the connection: does it speak TLS there, and believe our certificate?"
            return tls_problem(cause, ended)


def _server_context(config: ServerTlsConfig, protocols: Sequence[str]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could have the handshake repeated for ever, at our cost.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY[config.client_auth]
    if config.client_auth is not ClientAuth.NONE:
        # Every connection shows its certificate: no old one counts after a change of authorities.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    if config.authorities is not None:
        _believe(context, config.authorities, "--tls-ca")
    try:
        load_certificate(context, config.certificate, config.key)
    except CertificateUnusable as error:
        raise ConfigInvalid("--tls-cert, --tls-key", error.problem) from error
    return context


def _client_context(config: Tls) -> ssl.SSLContext:
    if (config.certificate is None) != (config.key is None):
        missing = "tls.certificate" if config.certificate is None else "tls.key"
        raise ConfigInvalid(missing, "is missing: a certificate is shown by means of its key")
    if config.authorities is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _believe(context, config.authorities, "tls.authorities")
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.certificate is not None and config.key is not None:
        try:
            load_certificate(context, config.certificate, config.key)
        except CertificateUnusable as error:
            raise ConfigInvalid("tls.certificate, tls.key", error.problem) from error
    return context


def _believe(context: ssl.SSLContext, authorities: Path, setting: str) -> None:
    try:
        context.load_verify_locations(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(setting, f"{authorities} cannot be used: {error}") from error


def _looks(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


async def exactly(
    stream: trio.abc.Stream, count: int, malformed: Callable[[str], Exception]
) -> bytes:
    """Read `count` bytes. Raises what `malformed` makes of a text if the stream ends before."""
    data = b""
    while len(data) < count:
        piece = await stream.receive_some(count - len(data))
        if not piece:
            raise malformed(f"it ends after {len(data)} bytes")
        data += bytes(piece)
    return data
