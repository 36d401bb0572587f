"""Which header fields and JSON members a server reads while it answers, noted by name."""

from __future__ import annotations

from typing import Any

import pytest

from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command
from remoting.wire.header_json import decode_json_header


class _Noting(dict[str, Any]):
    """A dict that notes each name that is asked for."""

    def __init__(self, values: dict[str, Any], names: set[str]) -> None:
        super().__init__(values)
        self._names = names

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def _note(self, key: object) -> None:
        if isinstance(key, str) and not key.startswith("hostile"):
            self._names.add(key)


class NamesRead:
    """The names that were read since this was made, without those that only hostile values have.

    Attributes:
        fields: of headers of requests.
        members: of JSON objects in bodies.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fields: set[str] = set()
        self.members: set[str] = set()
        make = JsonObject.__init__

        def decode_noting(header: bytes, body: bytes) -> Command:
            command = decode_json_header(header, body)
            if not command.is_response:
                command.fields = _Noting(command.fields, self.fields)
            return command

        def make_noting(instance: JsonObject, body_name: str, value: Any) -> None:
            make(instance, body_name, value)
            instance.members = _Noting(instance.members, self.members)

        monkeypatch.setattr("remoting.wire.frame.decode_json_header", decode_noting)
        monkeypatch.setattr(JsonObject, "__init__", make_noting)
