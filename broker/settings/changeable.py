"""The settings that may change while brokers run, by RocketMQ's names.

An entry says where `BrokerConfig` has the setting, and its allowed values. Settings without a name
in RocketMQ begin with `dledger`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.config import BrokerConfig
from broker.limits import MAX_DELAY_S, MAX_MESSAGE_BYTES
from remoting.wire.field_values import read_natural

_LONGEST_HOURS: Final = 10 * 366 * 24
_DAY_MS: Final = 24 * 3600 * 1000
_LARGEST_TABLE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Changeable:
    """A setting that may be changed.

    Attributes:
        name: RocketMQ's.
        place: the attribute of `BrokerConfig`, and the attribute of that if it is an object.
        values: the allowed values, in words, with the unit.
        read: reads a value. Raises ValueError.
        shown: writes a value.
    """

    name: str
    place: tuple[str, ...]
    values: str
    read: Callable[[str], object]
    shown: Callable[[Any], str]

    def value_in(self, config: BrokerConfig) -> str:
        value: Any = config
        for attribute in self.place:
            value = getattr(value, attribute)
        return self.shown(value)


def _whole(name: str, place: str, least: int, most: int, unit: str) -> Changeable:
    return Changeable(
        name,
        tuple(place.split(".")),
        f"{least} to {most} {unit}".strip(),
        lambda text: _between(text, least, most),
        str,
    )


def _in_ms(name: str, place: str, most_ms: int) -> Changeable:
    """Make a setting that RocketMQ gives in milliseconds and the configuration has in seconds."""
    return Changeable(
        name,
        tuple(place.split(".")),
        f"1000 to {most_ms} milliseconds",
        lambda text: _between(text, 1000, most_ms) / 1000,
        lambda value_s: str(round(value_s * 1000)),
    )


def _truth(name: str, place: str, *, is_negated: bool = False) -> Changeable:
    return Changeable(
        name,
        tuple(place.split(".")),
        "true or false",
        lambda text: _read_truth(text) is not is_negated,
        lambda value: str(value is not is_negated).lower(),
    )


def _between(text: str, least: int, most: int) -> int:
    number = read_natural(text)
    if number is None or not least <= number <= most:
        raise ValueError("no whole number, or out of its range")
    return number


def _read_truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("no truth value")
    return text.lower() == "true"


def _read_permission(text: str) -> int:
    number = read_natural(text)
    if number not in (2, 4, 6):
        raise ValueError("no permission")
    return number


def _read_hours(text: str) -> frozenset[int]:
    return frozenset(_between(hour.strip(), 0, 23) for hour in text.split(";"))


def _shown_hours(hours: frozenset[int]) -> str:
    return ";".join(f"{hour:02d}" for hour in sorted(hours))


CHANGEABLE: Final[Mapping[str, Changeable]] = {
    one.name: one
    for one in (
        _truth("autoCreateTopicEnable", "auto_create_topics"),
        _truth("autoCreateSubscriptionGroup", "auto_create_groups"),
        Changeable(
            "brokerPermission",
            ("permission",),
            "6 read and write, 4 read only, 2 write only",
            _read_permission,
            str,
        ),
        _truth("cleanFileForciblyEnable", "retention.drops_oldest"),
        Changeable(
            "deleteWhen",
            ("retention", "at_hours"),
            "hours of the day, 00 to 23, local time, with ; between",
            _read_hours,
            _shown_hours,
        ),
        _whole("diskMaxUsedSpaceRatio", "retention.clean_percent", 10, 95, "percent"),
        _whole("diskSpaceCleanForciblyRatio", "retention.force_percent", 10, 100, "percent"),
        _whole("diskSpaceWarningLevelRatio", "retention.refuse_percent", 10, 100, "percent"),
        _whole("fileReservedTime", "retention.keep_hours", 1, _LONGEST_HOURS, "hours"),
        _whole("maxMessageSize", "max_message_bytes", 1024, MAX_MESSAGE_BYTES, "bytes"),
        _truth("notifyConsumerIdsChangedEnable", "notifies_consumers"),
        _truth("rejectTransactionMessage", "takes_transactions", is_negated=True),
        _whole("timerMaxDelaySec", "max_delay_s", 1, MAX_DELAY_S, "seconds"),
        _in_ms("transactionCheckInterval", "checks.every_s", _DAY_MS),
        _whole("transactionCheckMax", "checks.max_checks", 1, 100_000, ""),
        _in_ms("transactionTimeOut", "checks.after_s", _DAY_MS),
        _whole(
            "dledgerMaxConnectionsOfUser", "limits.max_connections_of_user", 1, _LARGEST_TABLE, ""
        ),
        _whole("dledgerMaxConsumers", "limits.max_clients", 1, _LARGEST_TABLE, ""),
        _whole("dledgerMaxDelayedMessages", "limits.max_delayed_messages", 1, 100_000_000, ""),
        _whole("dledgerMaxGroups", "limits.max_groups", 1, _LARGEST_TABLE, ""),
        _whole("dledgerMaxHeldPullsOfUser", "limits.max_held_of_user", 1, _LARGEST_TABLE, ""),
        _whole("dledgerMaxNewTopicsOfUser", "limits.max_new_of_user", 1, _LARGEST_TABLE, "an hour"),
        _whole("dledgerMaxOffsetTables", "limits.max_offset_tables", 1, _LARGEST_TABLE, ""),
        _whole("dledgerMaxOpenTransactions", "limits.max_open_transactions", 1, 200_000, ""),
        _whole("dledgerMaxTopics", "limits.max_topics", 1, 50_000, ""),
        _whole("dledgerMaxWaitingOfUser", "limits.max_waiting_of_user", 1, _LARGEST_TABLE, ""),
        _whole("dledgerTransactionGiveUpHours", "checks.give_up_hours", 1, _LONGEST_HOURS, "hours"),
    )
}


def changed_config(config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration of a member with the changes of operators, by RocketMQ's names.

    Values that cannot be read are ignored: a broker of another version has set them. The leader
    judges a change by its own configuration. Another member may have been started with a percentage
    that contradicts it, and uses the nearest one that does not.
    """
    return _with(config, _levelled(config, _attributes(values)))


def judged_config(config: BrokerConfig, values: Mapping[str, str]) -> BrokerConfig:
    """Return the same for a requested change. Raises SettingInvalid: two settings contradict each
    other.
    """
    return _with(config, _attributes(values))


_Changes = dict[str, dict[str, Any]]


def _attributes(values: Mapping[str, str]) -> _Changes:
    """Group values by attribute of `BrokerConfig`, "" for those in itself."""
    changes: _Changes = {}
    for name, text in values.items():
        setting = CHANGEABLE.get(name)
        if setting is None:
            continue
        try:
            value = setting.read(text)
        except ValueError:
            continue
        *outer, attribute = setting.place
        changes.setdefault("".join(outer), {})[attribute] = value
    return changes


def _levelled(started: BrokerConfig, changes: _Changes) -> _Changes:
    """Raise percentages of the disk, so that each is as high as the one before it."""
    inner = changes.get("retention")
    if inner is not None:
        percent = 0
        for name in ("clean_percent", "force_percent", "refuse_percent"):
            percent = inner[name] = max(percent, inner.get(name, getattr(started.retention, name)))
    return changes


def _with(config: BrokerConfig, changes: _Changes) -> BrokerConfig:
    whole = dict(changes.get("", {}))
    for attribute, inner in changes.items():
        if attribute:
            whole[attribute] = replace(getattr(config, attribute), **inner)
    return replace(config, **whole)
