"""Errors of the name server. The client gets their text as the remark of its reply."""

from remoting.wire.errors import RemotingError


class StaleMaster(RemotingError):
    """A broker registers as master while a newer master of its name is known.

    Attributes:
        broker_name: the name of both.
        address: the broker that registered.
        state_version: its term.
        master_address: the known master.
        master_state_version: the master's term.
    """

    broker_name: str
    address: str
    state_version: int
    master_address: str
    master_state_version: int
    _template = (
        "{address} is not master of {broker_name}: its state version {state_version} is older than "
        "{master_state_version} of {master_address}; register again with the present one"
    )


class TableFull(RemotingError):
    """A table of the name server has reached its limit; its entries stay."""

    table: str
    limit: int
    _template = "the name server knows {limit} {table} already: delete unused ones"


class RegistrationRefused(RemotingError):
    """A registration with impossible values.

    Attributes:
        reason: what is wrong and what to do.
    """

    reason: str


class BrokerAlive(RemotingError):
    """A request changes a broker that is registered by another host, whose connection is open."""

    address: str
    _template = (
        "{address} is registered by another host, whose connection is open: end that broker, or "
        "speak from its host"
    )


class NameHeld(RemotingError):
    """A registration lacks the proof that the holders of a broker name share.

    Attributes:
        broker_name: the name.
        required_s: how long the proof remains required, if no broker registers with it meanwhile.
    """

    broker_name: str
    required_s: float
    _template = (
        "broker name {broker_name:.80} is held by another group: choose another name, or end that "
        "group and wait {required_s:.0f} s"
    )


class SettingFileUnreadable(RemotingError):
    """The file of settings cannot be used."""

    path: str
    reason: str
    _template = "{path}: {reason}; mend it, or move it away to begin without settings"


class SettingNotKept(RemotingError):
    """A setting could not be written to its file, and is not in force."""

    path: str
    reason: str
    _template = "{path} cannot be written ({reason}): nothing was changed, try again"
