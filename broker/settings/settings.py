"""The settings in force: those of the start, changed by operators."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Final

from broker.config import BrokerConfig
from broker.errors import RequestRefused
from broker.serving.parts import Shared
from broker.settings.changeable import changed_config
from broker.settings.state import CHANGED_SETTINGS, ChangedSettings
from remoting.bodies.pieces import pieces
from remoting.bodies.topic_config import (
    PERMISSION_READ,
    PERMISSION_READ_WRITE,
    PERMISSION_WRITE,
    TopicConfig,
)

_ROUTED_A_STEP: Final = 256


class Settings:
    """One member's settings in force.

    Args:
        started_with: the settings of its command line.
        changed: the changes in the log.
    """

    def __init__(self, started_with: BrokerConfig, changed: ChangedSettings) -> None:
        self.started_with = started_with
        self._changed = changed
        self._seen = 0
        self._now = started_with

    def start_with(self, config: BrokerConfig) -> None:
        """Take over what this object alone answers for from the settings of another start."""
        taken = {name: getattr(config, name) for name in ("auto_create_topics", "checks")}
        keeps = replace(config.retention, drops_oldest=self.started_with.retention.drops_oldest)
        self.started_with = replace(self.started_with, retention=keeps, **taken)
        self._now = changed_config(self.started_with, self._changed.values)

    @property
    def now(self) -> BrokerConfig:
        """The settings in force. Do not keep them: they change with the log."""
        if self._changed.setting_changes != self._seen:
            self._seen = self._changed.setting_changes
            self._now = changed_config(self.started_with, self._changed.values)
        return self._now

    def check_writable(self) -> BrokerConfig:
        """Return the settings in force. Raises RequestRefused (16) if brokerPermission forbids
        sending.
        """
        now = self.now
        if not now.permission & PERMISSION_WRITE:
            raise _forbidden(now.group, "sending message")
        return now

    def check_readable(self) -> None:
        """Raise RequestRefused (16) if brokerPermission forbids reading."""
        now = self.now
        if not now.permission & PERMISSION_READ:
            raise _forbidden(now.group, "pulling message")

    def routed_in_steps(
        self, topics: Mapping[str, TopicConfig]
    ) -> Generator[None, None, Mapping[str, TopicConfig]]:
        """Return the present topics with their permissions limited to the broker's own, for routes.

        In steps: 20 000 topics take as long as a loop may be held.
        """
        routed, left = dict(topics), self.now.permission | ~PERMISSION_READ_WRITE
        if left != ~0:
            for some in pieces(routed.values(), _ROUTED_A_STEP):
                for config in some:
                    limited = replace(config, permission=config.permission & left)
                    routed[config.topic] = limited
                yield
        return routed


def _forbidden(broker_name: str, what: str) -> RequestRefused:
    return RequestRefused.forbidden(
        f"the broker[{broker_name}] {what} is forbidden: brokerPermission"
    )


SETTINGS: Final = Shared(
    "settings", lambda parts: Settings(parts.config, parts.state[CHANGED_SETTINGS])
)
