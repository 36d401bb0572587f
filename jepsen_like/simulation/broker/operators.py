"""Operators: they change settings, redrive dead letters, and resume transactions.

They check that what was acknowledged to them is in the log, that each dead letter is delivered once
more at most once, and that each transaction that was given up is resumed at most once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.dead_letters.request import MAX_LETTERS, TO_GROUP, TO_TOPIC
from jepsen_like.simulation.broker.asking import ClientRun
from jepsen_like.simulation.broker.log_model import LogModel
from jepsen_like.simulation.broker.served_broker import ServedBroker
from jepsen_like.simulation.invariants import InvariantViolated
from remoting.message.message_id import message_id
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# Settings that other clients notice, and values of them; an empty value restores the command
# line's.
SETTINGS = {
    "dledgerMaxDelayedMessages": ("3", "12", ""),
    "dledgerMaxOpenTransactions": ("3", "12", ""),
    "rejectTransactionMessage": ("true", "false", "", ""),
    "timerMaxDelaySec": ("1", "2", ""),
    "transactionCheckMax": ("1", "4", ""),
}
# A setting that no client notices; each change has another value. None is refused.
NUMBERED, FIRST_VALUE = "maxMessageSize", 1 << 20
# Only the newest given-up transactions are resumed: older messages are dropped more often.
MOST_GIVEN_UP = 5


class Operators:
    """Requests of operators; dead letters of `group`, which no client deletes, are redriven.

    With `to_topics` some go to their original topic. Clients that pop there take them for messages
    that come again.
    """

    def __init__(
        self, run: ClientRun, model: Callable[[], LogModel], group: str, to_topics: bool
    ) -> None:
        self._run = run
        self._chance = run.chance("operators")
        self._model = model
        self._group = group
        self._targets = (TO_GROUP, TO_TOPIC) if to_topics else (TO_GROUP,)
        self._changes = 0
        self._next_offset = 0  # of the dead letters
        self._changed: list[tuple[str, str]] = []  # acknowledged
        self._redriven: set[int] = set()  # offsets of dead letters; acknowledged
        self._resumed: set[int] = set()  # positions; acknowledged

    def change_settings(self, broker: ServedBroker) -> None:
        """Change a setting or two."""
        self._changes += 1
        numbered = NUMBERED, str(FIRST_VALUE + self._changes)
        name = self._chance.choice(sorted(SETTINGS))
        changes = dict([numbered, (name, self._chance.choice(SETTINGS[name]))])

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._run.coverage.count("changes of settings")
                self._changed.append(numbered)

        body = "".join(f"{name}={value}\n" for name, value in changes.items()).encode()
        self._run.ask(broker, RequestCode.UPDATE_BROKER_CONFIG, {}, body, then)

    def redrive(self, broker: ServedBroker) -> None:
        """Redrive some dead letters: from the first one on, or from the end of the last request."""
        is_dry = self._chance.happens(0.1)
        fields = {
            "consumerGroup": self._group,
            "queueId": 0,
            "beginOffset": self._chance.choice((0, self._next_offset)),
            "maxMsgNums": self._chance.choice((1, 2, MAX_LETTERS)),
            "target": self._chance.choice(self._targets),
            "dryRun": str(is_dry).lower(),
        }

        def then(reply: Command) -> None:
            if reply.code != ResponseCode.SUCCESS or is_dry:
                return
            counts = {name: int(value) for name, value in reply.fields.items()}
            self._next_offset = following = counts["nextOffset"]
            done = counts["redriven"] + counts["taken"]
            self._run.coverage.count("dead letters delivered once more", counts["redriven"])
            if not counts["withoutTopic"]:  # else it is not known which ones
                self._redriven.update(range(following - done, following))

        self._run.ask(broker, RequestCode.REDRIVE_DEAD_LETTERS, fields, then=then)

    def resume(self, broker: ServedBroker) -> None:
        """Have producers asked once more about a transaction that was given up."""
        given_up = self._model().given_up[-MOST_GIVEN_UP:]
        if not given_up:
            return
        position = self._chance.choice(given_up)

        def then(reply: Command) -> None:
            if reply.code == ResponseCode.SUCCESS:
                self._run.coverage.count("transactions resumed")
                self._resumed.add(position)

        fields = {"msgId": message_id("10.0.0.1", 10_911, position)}
        self._run.ask(broker, RequestCode.RESUME_CHECK_HALF_MESSAGE, fields, then=then)

    def check(self, model: LogModel) -> None:
        """Compare with the whole log. Raises InvariantViolated."""
        fail = partial(InvariantViolated, "what operators were told is done is in the log")
        for change in self._changed:
            if change not in model.setting_changes:
                raise fail(f"{change} was acknowledged")
        taken = model.taken_letters(f"%DLQ%{self._group}", 0)
        if not self._redriven <= taken:
            lost = sorted(self._redriven - taken)
            raise fail(f"dead letters {lost} were acknowledged, the log has {sorted(taken)}")
        if not self._resumed <= model.resumed:
            lost = sorted(self._resumed - model.resumed)
            raise fail(f"transactions given up at {lost} were resumed")
