"""Shows a broker's settings, and changes them (25, 26).

RocketMQ lets anyone write any setting of one process, even those that name programs and files,
which made remote execution possible. Here a change is an entry of the log, so that it holds for all
members, and only settings of `CHANGEABLE` can be changed. Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Mapping
from typing import Final

from broker.admin.settings import shown_settings
from broker.errors import RequestRefused, SettingInvalid
from broker.log.submissions import submit_commands
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.settings.changeable import CHANGEABLE, judged_config
from broker.settings.commands import ChangeSettings
from broker.settings.settings import SETTINGS
from broker.settings.state import CHANGED_SETTINGS
from broker.topics.state import TOPICS
from remoting.bodies.table import encode_properties_text
from remoting.bodies.topic_config import DataVersion
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Room for each setting once, with comments.
MAX_BODY_BYTES: Final = 16 * 1024

# As a value, it restores a setting to that of the command line. So does an empty value, which some
# shell scripts of RocketMQ drop.
BACK: Final = "commandLine"


class SettingsProcessor:
    def __init__(self, parts: Parts) -> None:
        self._changed = parts.state[CHANGED_SETTINGS]
        self._topics = parts.state[TOPICS]
        self._log = parts.log
        self._settings = parts[SETTINGS]
        self._led_term = parts.led_term
        self._announce = parts.announce
        self._wall_clock_ms = parts.wall_clock_ms

    def show(self, _origin: Origin, command: Command) -> Command:
        leads = self._led_term() is not None
        shown = shown_settings(self._settings, self._changed, self._topics, leads=leads)
        version = DataVersion(self._changed.setting_changes, self._changed.settings_changed_ms)
        fields = {"version": compact_json(version.to_json())}
        return command.reply(fields=fields, body=encode_properties_text(shown))

    def change(self, origin: Origin, command: Command) -> None:
        """Change settings (25): all that are named, or none. The reply leaves when the change is
        applied and the name servers know of it.

        Raises RequestRefused: (16) a setting that cannot be changed, (29) an unknown setting, an
        invalid value, or a malformed text.
        """
        values = read_changes(command.body)
        for name, value in values.items():
            self._check(name, value)
        later = {**self._changed.values, **values}
        try:
            judged_config(
                self._settings.started_with,
                {name: value for name, value in later.items() if value is not None},
            )
        except SettingInvalid as error:
            raise _invalid(f"{', '.join(sorted(values))}: {error.problem}") from None

        def changed() -> None:
            self._announce(lambda: origin.send(command.reply()))

        change = ChangeSettings(values, self._wall_clock_ms())
        submit_commands(self._log, [change], replying(origin, command, changed))

    def _check(self, name: str, value: str | None) -> None:
        setting = CHANGEABLE.get(name)
        if setting is None:
            leads = self._led_term() is not None
            if name in shown_settings(self._settings, self._changed, self._topics, leads=leads):
                raise RequestRefused.forbidden(
                    f"{name} cannot be changed while the broker runs; nothing was changed"
                )
            raise _invalid(f"there is no setting {name!r:.80}")
        if value is None:
            return
        try:
            setting.read(value)
        except ValueError:
            raise _invalid(f"{name}={value!r:.80}: give {setting.values}") from None


def read_changes(body: bytes) -> Mapping[str, str | None]:
    """Read "name=value" lines, as Java writes properties; None restores the command line's value.

    Raises RequestRefused (29): a malformed line, or too many or no lines.
    """
    if len(body) > MAX_BODY_BYTES:
        raise _invalid(f"{len(body)} bytes of settings: at most {MAX_BODY_BYTES}")
    try:
        lines = [line.strip() for line in body.decode().splitlines()]
    except UnicodeDecodeError:
        raise _invalid("the settings are no text") from None
    values: dict[str, str | None] = {}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        name, separator, value = (part.strip() for part in line.partition("="))
        if not name or not separator:
            raise _invalid(f"{line!r:.80}: give name=value")
        values[name] = None if value in ("", BACK) else value
    if not values:
        raise _invalid("no setting is named: give name=value")
    return values


def _invalid(problem: str) -> RequestRefused:
    return RequestRefused.invalid(f"{problem}; nothing was changed")
