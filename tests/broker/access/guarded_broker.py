"""A broker with access control, its administrator, and users made in a line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from broker.server import Broker
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.signature import Credentials
from remoting.wire.users import AccessFile
from tests.broker.one_broker import Client, running_broker

CODE = RequestCode
ADMIN = Credentials("admin", "admin-secret")
FILE = AccessFile(ADMIN, bytes(range(32)))
NO_PERMISSION = ResponseCode.NO_PERMISSION


class Guarded:
    """A broker with access control, and clients of its users."""

    def __init__(self, broker: Broker, nursery: trio.Nursery) -> None:
        self.broker = broker
        self._nursery = nursery
        self.admin = self.client(ADMIN)

    def client(self, credentials: Credentials | None) -> Client:
        return Client(self._nursery, str(self.broker.config.listen), credentials)

    async def user(self, name: str, *entries: dict[str, Any], **more: str) -> Client:
        """A new user with rules, as its client."""
        secret = f"{name}-secret"
        body = {"username": name, "password": secret, "userType": "Normal", **more}
        assert (await self.ask(CODE.AUTH_CREATE_USER, body, username=name)) == 0
        if entries:
            await self.rules(name, *entries)
        return self.client(Credentials(name, secret))

    async def rules(self, name: str, *entries: dict[str, Any], policy: str = "Custom") -> None:
        subject = f"User:{name}"
        policies = [{"policyType": policy, "entries": list(entries)}]
        body = {"subject": subject, "policies": policies}
        assert (await self.ask(CODE.AUTH_UPDATE_ACL, body, subject=subject)) == 0

    async def lite_parent(self, topic: str, group: str) -> None:
        """A topic with lite topics, and a group that reads them."""
        put, lite = CODE.UPDATE_AND_CREATE_TOPIC, "+message.type=LITE"
        assert await self.ask(put, topic=topic, attributes=lite) == 0
        bound = {"groupName": group, "attributes": {"+lite.bind.topic": topic}}
        assert await self.ask(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bound) == 0

    async def ask(self, code: int, body: object = None, **fields: Any) -> int:
        """What the administrator's request is answered with."""
        content = b"" if body is None else json.dumps(body).encode()
        return (await self.admin.ask(code, content, **fields)).code

    async def told(self, code: int, **fields: Any) -> Any:
        reply = await self.admin.ask(code, **fields)
        assert reply.code == 0, reply
        return json.loads(reply.body) if reply.body else None


def allow(resource: str, *actions: str, **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": "Allow", **more}


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[Guarded]:
    async with running_broker(directory, access=FILE, **settings) as (broker, nursery):
        yield Guarded(broker, nursery)
