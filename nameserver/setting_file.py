"""The file of the settings of operators, in RocketMQ's format (its kvConfig.json)."""

import os
from pathlib import Path
from typing import Final

from nameserver.errors import SettingFileUnreadable
from nameserver.settings import SettingTable
from remoting.bodies.json_object import JsonObject
from remoting.wire.errors import RemotingError
from remoting.wire.loose_json import compact_json

# All settings, with twelve bytes for each character, and names.
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024


class SettingFile:
    """Keeps settings over restarts. The file at `path` need not exist."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, settings: SettingTable) -> None:
        """Put the settings of the file into the table. Raises SettingFileUnreadable."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise SettingFileUnreadable(str(self._path), error.strerror or str(error)) from None
        try:
            spaces = JsonObject.parse("settings", content, _MAX_FILE_BYTES).object("configTable")
            for namespace in spaces.members:
                space = spaces.object(namespace)
                for key in space.members:
                    settings.put(namespace, key, space.text(key))
        except RemotingError as error:
            raise SettingFileUnreadable(str(self._path), str(error)) from None

    def save(self, settings: SettingTable) -> None:
        """Replace the file; it is durable when this returns. Raises OSError."""
        body = compact_json({"configTable": settings.everything()}).encode()
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
