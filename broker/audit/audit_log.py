"""Records audited requests in the log before they are carried out."""

from typing import Final

from broker.access.guard import ACCESS_GUARD, asked_from, told_fields
from broker.audit.commands import AuditRequest
from broker.formats.state import FORMATS
from broker.log.entry import AUDIT_VERSION
from broker.log.submissions import Then, submit_commands
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from remoting.wire.codes import request_name
from remoting.wire.command import Command
from remoting.wire.quoted import quoted

# The longest texts of one record, which takes a few hundred bytes. The name of a user is short.
MAX_PEER_CHARACTERS: Final = 80
MAX_REQUEST_CHARACTERS: Final = 80
MAX_ABOUT_CHARACTERS: Final = 500


class AuditLog:
    def __init__(self, parts: Parts) -> None:
        self._guard = parts[ACCESS_GUARD]
        self._formats = parts.state[FORMATS]
        self._log = parts.log
        self._wall_clock_ms = parts.wall_clock_ms

    def is_recording(self) -> bool:
        """Return whether requests are recorded: with access control, once all members of the group
        read such records.
        """
        return self._guard.is_on and self._formats.format_version >= AUDIT_VERSION

    def record(self, origin: Origin, command: Command, then: Then) -> None:
        """Record a request that the guard has permitted; `then` is called when the record is
        applied, or with the reason why the log did not take it.

        Raises RequestRefused (16): its user was removed meanwhile.
        """
        record = AuditRequest(
            self._wall_clock_ms(),
            self._guard.caller(origin, command).name,
            quoted(asked_from(origin, command), MAX_PEER_CHARACTERS),
            quoted(request_name(command.code), MAX_REQUEST_CHARACTERS),
            quoted(told_fields(command), MAX_ABOUT_CHARACTERS),
        )
        submit_commands(self._log, [record], then)


AUDIT_LOG: Final = Shared("audit log", AuditLog)
