"""Mutual TLS between members, and between members and tools.

Both sides show a certificate that one of the group's authorities signed. A member's certificate
names its node id as a DNS name. A caller checks the name of the member that it dials, and a member
checks the name of a member that calls it. The version is TLS 1.3: both sides run this library.

Names are compared letter by letter. The rules for web servers (patterns, addresses, upper and lower
case) do not apply: a node id need not be a host name.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path

import trio

from dledger.declared_error import DeclaredError
from dledger.errors import ConfigInvalid, MessageMalformed
from dledger.network.secure_stream import SecureStream
from dledger.network.tls_config import TlsConfig

Stream = trio.abc.Stream  # of a network, or a SecureStream over one

# Alerts by which a side rejects a certificate.
_REJECTS = ("ALERT_UNKNOWN_CA", "CERTIFICATE", "ALERT_ACCESS_DENIED")
# A side may close the connection without an alert, as earlier versions of this library do.
ENDED_EARLY = (
    "the connection ended early: that side's log says whether our certificate is believed there"
)


class TlsRefused(MessageMalformed):
    """The peer of a connection does not speak TLS, or did not prove its name.

    Attributes:
        lasting: whether a retry is refused as well; False if the connection ended early.
    """

    lasting: bool = True


class GroupTls:
    """The TLS contexts of one node or tool. Raises ConfigInvalid for unusable files.

    Attributes:
        config: the files.
        generation: how many times the files were read again.
        ends_at: when our certificate ends, in seconds since 1970; None until its names are checked.
    """

    def __init__(self, config: TlsConfig) -> None:
        self.config = config
        self.generation = 0
        self.ends_at: float | None = None
        self._client, self._server = _contexts(config)

    def reload(self, names: Iterable[str] = ()) -> None:
        """Read the files again, for new connections; open ones keep their certificates.

        Raises ConfigInvalid, and keeps the old contexts. `names`: see `check_names`.
        """
        contexts = _contexts(self.config)
        ends_at = _check_names(self.config, contexts, names)
        self._client, self._server = contexts
        self.ends_at = ends_at
        self.generation += 1

    def check_names(self, names: Iterable[str]) -> None:
        """Raise ConfigInvalid unless our certificate proves each of these names to our peers."""
        self.ends_at = _check_names(self.config, (self._client, self._server), names)

    async def dialled(self, stream: trio.abc.Stream, node_id: str) -> SecureStream:
        """Return a connection to a member that has proven to be `node_id`. Raises TlsRefused.

        The caller sets the timeout, and closes `stream`.
        """
        secure = SecureStream(stream, self._client)
        try:
            await secure.do_handshake()
        except trio.BrokenResourceError as error:
            early = f"no TLS: {ENDED_EARLY}, or whether TLS is spoken at all"
            raise handshake_refused(error, early) from error
        names = names_shown(secure)
        if node_id not in names:
            raise TlsRefused(f"its certificate is that of {_listed(names)}, not of {node_id}")
        return secure

    async def accepted(self, stream: trio.abc.Stream) -> SecureStream:
        """Return a connection from a caller with a certificate of the group. Raises TlsRefused."""
        return await accepted_by(self._server, stream)


async def accepted_by(context: ssl.SSLContext, stream: trio.abc.Stream) -> SecureStream:
    """Return a connection from a caller that has done the handshake. Raises TlsRefused.

    The caller of this function sets the timeout, and closes `stream`.
    """
    secure = SecureStream(stream, context, server_side=True)
    try:
        await secure.do_handshake()
    except trio.BrokenResourceError as error:
        early = "it ended the connection: does it believe our certificate?"
        raise handshake_refused(error, early) from error
    return secure


def group_tls(tls: GroupTls | TlsConfig | None) -> GroupTls | None:
    """Return the contexts for these files; None without TLS. Raises ConfigInvalid."""
    return GroupTls(tls) if isinstance(tls, TlsConfig) else tls


def names_shown(stream: SecureStream) -> frozenset[str]:
    return _dns_names(stream.getpeercert())


def _dns_names(certificate: Mapping[str, object] | None) -> frozenset[str]:
    names = (certificate or {}).get("subjectAltName", ())
    assert isinstance(names, tuple)
    return frozenset(name for kind, name in names if kind == "DNS")


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "no member"


def handshake_refused(error: trio.BrokenResourceError, ended: str) -> TlsRefused:
    """Return the error for a TLS connection that broke; `ended` describes an early end."""
    cause = error.__cause__
    lasting = isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError)
    return TlsRefused(tls_problem(cause, ended), lasting)


def tls_problem(cause: BaseException | None, ended: str) -> str:
    """Say why a connection with TLS broke; `ended` if it was closed."""
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not believed: {cause.verify_message}"
        case ssl.SSLEOFError() | ConnectionError():
            return ended
        case ssl.SSLError(reason="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            return "it showed no certificate"
        case ssl.SSLError(reason=str(reason)) if any(said in reason for said in _REJECTS):
            return f"it does not believe our certificate: {reason.lower().replace('_', ' ')}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST"):
            return "it does not speak TLS: give certificates to all of the group, or to none"
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
    # No session tickets: every connection shows a certificate.
    server.num_tickets = 0
    for context in (client, server):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            load_certificate(context, config.certificate, config.key)
        except CertificateUnusable as error:
            raise ConfigInvalid("tls.certificate, tls.key", error.problem) from error
    return client, server


class CertificateUnusable(DeclaredError):
    """A certificate and its key cannot be used together, or not be read."""

    problem: str


class _KeyHasPassword(DeclaredError):
    problem: str


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Have `context` show a certificate. Raises CertificateUnusable."""
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError, _KeyHasPassword) as error:
        raise CertificateUnusable(f"{certificate} and {key} cannot be used: {error}") from error


def _no_password() -> str:
    raise _KeyHasPassword(
        "the key has a password; store it without one, readable by its owner only"
    )


def _check_names(config: TlsConfig, contexts: Contexts, names: Iterable[str]) -> float | None:
    """Return when our certificate ends, unless there is no name to check. Raises ConfigInvalid."""
    wanted = frozenset(names)
    if not wanted:
        return None
    certificate = _shown_to_ourselves(config, contexts)
    shown = _dns_names(certificate)
    if not wanted <= shown:
        raise ConfigInvalid(
            "tls.certificate",
            f"{config.certificate} is that of {_listed(shown)}, not of {_listed(wanted - shown)}: "
            "name every member that runs here in it, as DNS names",
        )
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def _shown_to_ourselves(config: TlsConfig, contexts: Contexts) -> Mapping[str, object]:
    """Return our certificate as others see it, from a handshake with ourselves.

    So a certificate that peers would reject is reported at the start. Raises ConfigInvalid.
    """
    client, server = contexts
    to_caller, to_called = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_caller, to_called)
    called = server.wrap_bio(to_called, to_caller, server_side=True)
    try:
        # In turn: a hello, an answer with a certificate, the client's certificate, its check.
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
    return caller.getpeercert() or {}
