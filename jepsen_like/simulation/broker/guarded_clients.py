"""An administrator allows and denies a user to send, and the user tries.

A denial that was answered counts from then on: whichever member leads, it accepts no message of the
user. What the administrator was told is done is in the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from jepsen_like.simulation.broker.asking import ClientRun, send_fields
from jepsen_like.simulation.broker.log_model import LogModel
from jepsen_like.simulation.broker.served_broker import ServedBroker
from jepsen_like.simulation.invariants import InvariantViolated
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.signature import Credentials

USER = Credentials("user", "user-secret")
_SUBJECT = f"User:{USER.access_key}"


class GuardedClients:
    def __init__(
        self, run: ClientRun, topic: Callable[[], str], message: Callable[[], bytes]
    ) -> None:
        self._run = run
        self._chance = run.chance("guarded clients")
        self._topic = topic
        self._message = message
        self._is_made = False
        self._changes = 0
        self._under_way = 0
        # What the log says; None from the begin of a change on, until it was answered.
        self._is_allowed: bool | None = None
        self._told: list[str] = []  # the marks of changes that were answered

    def change_rule(self, broker: ServedBroker) -> None:
        """Allow or deny the user all topics; before that, make it."""
        if not self._is_made:
            self._make_user(broker)
            return
        self._changes += 1
        number, is_allowed = self._changes, self._chance.happens(0.5)
        # Each change has another address in a rule that grants nothing.
        mark = f"10.{number >> 8}.{number & 255}.0/24"
        self._is_allowed = None

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._told.append(mark)
                self._run.coverage.count("changes of rules")
                # A later change may be in the log already.
                if number == self._changes:
                    self._is_allowed = is_allowed

        rules: tuple[tuple[str, str, str, list[str], bool], ...] = (
            ("Custom", "Topic:*", "Pub", [], is_allowed),
            ("Default", "Group:none", "Get", [mark], True),
        )
        policies = [
            {
                "policyType": policy,
                "entries": [
                    {
                        "resource": resource,
                        "actions": [action],
                        "sourceIps": sources,
                        "decision": "Allow" if is_granted else "Deny",
                    }
                ],
            }
            for policy, resource, action, sources, is_granted in rules
        ]
        body = json.dumps({"subject": _SUBJECT, "policies": policies}).encode()
        self._run.ask(broker, RequestCode.AUTH_UPDATE_ACL, {"subject": _SUBJECT}, body, then)

    def try_to_send(self, broker: ServedBroker) -> None:
        """Send as the user."""
        then_allowed: list[bool | None] = []

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.NO_PERMISSION:
                self._run.coverage.count("requests not permitted")
            if reply.code != ResponseCode.SUCCESS or not self._is_made:
                return
            self._run.coverage.count("requests permitted by a rule")
            if then_allowed[0] is False:
                raise InvariantViolated(
                    "a denial counts from its answer on",
                    f"{broker.process} took a message of a user who may not send",
                )

        broker.before_requests(lambda: then_allowed.append(self._is_allowed))
        fields = send_fields(self._topic(), -1, "")
        self._run.ask(broker, RequestCode.SEND_MESSAGE, fields, self._message(), then, USER)

    def _make_user(self, broker: ServedBroker) -> None:
        def then(reply: Command) -> None:
            exists = "there is a user" in (reply.remark or "")
            self._is_made = self._is_made or reply.code == ResponseCode.SUCCESS or exists

        fields = {"username": USER.access_key}
        body = json.dumps({**fields, "password": USER.secret_key, "userType": "Normal"}).encode()
        self._run.ask(broker, RequestCode.AUTH_CREATE_USER, fields, body, then)

    def check(self, model: LogModel) -> None:
        """Compare with the whole log. Raises InvariantViolated."""
        fail = partial(InvariantViolated, "what operators were told is done is in the log")
        for mark in self._told:
            if mark not in model.rule_marks:
                raise fail(f"the rule for {mark} was acknowledged")
