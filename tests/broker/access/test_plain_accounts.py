"""What RocketMQ 4's tools ask about accounts (50 to 54)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.access.state import ACCESS
from remoting.wire.codes import ResponseCode
from remoting.wire.signature import Credentials
from tests.broker.access.guarded_broker import CODE, NO_PERMISSION, Guarded, allow, guarded
from tests.broker.one_broker import running_broker


async def put(here: Guarded, **fields: str) -> int:
    return await here.ask(CODE.UPDATE_AND_CREATE_ACL_CONFIG, **fields)


async def test_an_account_is_a_user_with_rules(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        account = {"accessKey": "shop", "secretKey": "shop-secret", "admin": "false"}
        listed = {"topicPerms": "orders=PUB", "groupPerms": "g=SUB", "defaultTopicPerm": "SUB"}
        assert await put(here, **account, **listed) == 0
        shop = here.client(Credentials("shop", "shop-secret"))
        assert (await shop.send("orders", b"1")).code == 0
        assert (await shop.send("others", b"1")).code == NO_PERMISSION
        # Version 4 asks the permission for all others only about names that are not listed.
        refused = await shop.pull("orders", 0, consumerGroup="g")
        assert (refused.code, "Sub on Topic orders" in (refused.remark or "")) == (16, True)
        assert await put(here, accessKey="shop", topicPerms="others=PUB", admin="false") == 0
        assert (await shop.send("others", b"1")).code == 0
        assert (await shop.send("orders", b"1")).code == NO_PERMISSION
        assert (await shop.pull("orders", 0, consumerGroup="g")).code == 0
        told = await here.told(CODE.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert told == {
            "globalWhiteAddrs": [],
            "plainAccessConfigs": [
                {
                    **{"accessKey": "shop", "admin": False, "defaultTopicPerm": "SUB"},
                    **{"defaultGroupPerm": "DENY", "topicPerms": ["others=PUB"]},
                    "groupPerms": ["g=SUB"],
                }
            ],
        }
        version = await here.admin.ask(CODE.GET_BROKER_CLUSTER_ACL_INFO)
        assert json.loads(version.fields["version"])["counter"] > 0
        assert version.fields["brokerName"] == here.broker.config.group
        assert await here.ask(CODE.DELETE_ACL_CONFIG, accessKey="shop") == 0
        assert await here.ask(CODE.DELETE_ACL_CONFIG, accessKey="shop") == 1
        assert (await shop.send("others", b"1")).code == NO_PERMISSION


async def test_an_account_keeps_its_secret_until_it_gets_another(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        made = {"accessKey": "shop", "secretKey": "shop-secret", "defaultTopicPerm": "PUB"}
        assert await put(here, **made) == 0
        assert await put(here, accessKey="shop", defaultTopicPerm="PUB") == 0
        old, new = (here.client(Credentials("shop", f"{one}-secret")) for one in ("shop", "new"))
        assert (await old.send("orders", b"1")).code == 0
        assert await put(here, accessKey="shop", secretKey="new-secret") == 0
        assert [(await one.send("orders", b"1")).code for one in (old, new)] == [16, 0]


async def test_only_a_super_user_makes_or_changes_an_admin_account(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        operator = await here.user("operator", allow("Cluster:*", "All"))
        code = CODE.UPDATE_AND_CREATE_ACL_CONFIG
        root: dict[str, Any] = {"accessKey": "root"}
        secret: dict[str, Any] = {"secretKey": "root-secret"}
        assert (await operator.ask(code, **root, **secret, admin="true")).code == NO_PERMISSION
        assert (await operator.ask(code, accessKey="operator", admin="true")).code == 16
        assert await put(here, **root, **secret, admin="true") == 0
        assert (await operator.ask(code, **root, secretKey="mine-now")).code == NO_PERMISSION
        assert (await operator.ask(CODE.DELETE_ACL_CONFIG, **root)).code == NO_PERMISSION
        everything = here.client(Credentials("root", "root-secret"))
        assert (await everything.send("orders", b"1")).code == 0
        poor = await here.user("poor")
        for one in (50, 51, 52, 54):
            assert (await poor.ask(one, accessKey="poor")).code == NO_PERMISSION


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"accessKey": "shop"}, "secretKey"),
        ({"accessKey": "shop", "secretKey": "short"}, "7 to 128"),
        ({"accessKey": "a:b", "secretKey": "long-enough"}, "username"),
        ({"accessKey": "admin", "secretKey": "long-enough"}, "administrator"),
        ({"accessKey": "shop", "secretKey": "long-enough", "topicPerms": "a=ALL"}, "DENY, PUB"),
        (
            {"accessKey": "shop", "secretKey": "long-enough", "whiteRemoteAddress": "10.0.0.*"},
            "every request is signed",
        ),
        ({"secretKey": "long-enough"}, "accessKey"),
    ],
)
async def test_an_account_that_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, fields: dict[str, Any], problem: str
) -> None:
    async with guarded(tmp_path) as here:
        before = here.broker.machine.state[ACCESS].access_changes
        reply = await here.admin.ask(CODE.UPDATE_AND_CREATE_ACL_CONFIG, **fields)
        assert reply.code != 0
        assert problem in (reply.remark or "")
        assert "long-enough" not in (reply.remark or "")
        assert here.broker.machine.state[ACCESS].access_changes == before


async def test_addresses_that_are_not_checked_are_refused_with_what_to_do(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        reply = await here.admin.ask(CODE.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="*")
        assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "user allow --from" in (reply.remark or "")


async def test_without_access_control_no_account_is_made(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        here = Guarded(broker, nursery)
        assert await put(here, accessKey="shop", secretKey="shop-secret") == 1
        assert await here.ask(CODE.DELETE_ACL_CONFIG, accessKey="shop") == 1
