"""The tables of a broker's log, by going through it entry by entry in plain Python.

What counts is what the broker's own fold took, and progress is what changed in the broker's state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, floor
from typing import Any

from broker.features import empty_state
from broker.log.entry import EntryKind, kind_of
from broker.log.fold import fold
from broker.log.state import BrokerState
from broker.offsets.state import OFFSETS
from broker.pop.state import POPS, InFlight
from broker.topics.state import TOPICS
from dledger.entry import Entry
from remoting.message.message_id import message_id
from remoting.message.record import MessageRecord, decode_record

MINUTE_MS, TEN_MINUTES_MS = 60_000, 600_000
Row = dict[str, Any]


class PlainTables:
    """All tables of a log whose group is `group`."""

    def __init__(self, group: str, entries: Sequence[Entry]) -> None:
        self._group = group
        self._state = empty_state()
        self.entries = entries
        self.messages: list[Row] = []
        self.progress: list[Row] = []
        self.pop_events: list[Row] = []
        self.popped: list[Row] = []
        self.commands: list[Row] = []
        self._lives: defaultdict[str, int] = defaultdict(int)
        self._log_ms: int | None = None
        for entry in entries:
            self._take(entry)

    # --- the facts ----------------------------------------------------------------------------

    def _take(self, entry: Entry) -> None:
        offsets = _progress(self._state)
        pops = {
            key: (queue.in_flight.copy(), queue.attempt_id)
            for key, queue in self._state[POPS].queues.items()
        }
        had = _popped(self._state)
        existing = set(self._state[TOPICS].configs)
        lives = self._lives.copy()
        (refused,) = fold(self._state, [entry]).results
        if refused is not None:
            return
        for topic in existing - set(self._state[TOPICS].configs):
            self._lives[topic] += 1
        body, commands = entry.body, b""
        if kind_of(body) is EntryKind.RECORD:
            at = 0
            while at < len(body):
                if body[at + 4 : at + 7] == b"DLB":
                    commands = body[at:]
                    break
                record, at = decode_record(body, at)
                self._take_message(entry, record)
        else:
            commands = body
        if not commands:
            return
        command: Any = self._state.registry.decode(commands)
        at_ms = self._log_ms
        for name in ("at_ms", "time_ms", "popped_ms", "hidden_ms"):
            at_ms = getattr(command, name, None) or at_ms
        head = {"raft_group": self._group, "index": entry.index, "ms": at_ms}
        self.commands.append({**head, "command": command, "position": entry.body_pos})
        landed = [
            one.popped_ms
            for one in getattr(command, "messages", [getattr(command, "message", None)])
            if type(command).__name__ in ("AckPopped", "BuryPopped") and _is_out(one, pops)
        ]
        if landed:
            head = {**head, "ms": max(at_ms or 0, *landed)}
        after = _progress(self._state)
        for key in offsets.keys() | after.keys():
            if offsets.get(key) != after.get(key):
                gone = (key not in after and lives[key[1]]) or self._lives[key[1]]
                life = lives[key[1]] if key not in after else gone
                row = {**head, "key": key, "life": life, "offset": after.get(key)}
                self.progress.append({**row, "of": type(command).__name__})
        self._take_pops(head, command, pops)
        has = _popped(self._state)
        for key in had.keys() | has.keys():
            if had.get(key) != has.get(key) and self._lives[key[1]] == lives[key[1]]:
                row = {**head, "key": key, "life": self._lives[key[1]], "left": has.get(key)}
                self.popped.append(row)

    def _take_message(self, entry: Entry, record: MessageRecord) -> None:
        pairs = record.property_map()
        self._log_ms = max(self._log_ms or 0, record.store_timestamp)
        self.messages.append(
            {
                "raft_group": self._group,
                "index": entry.index,
                "term": entry.term,
                "topic": record.topic,
                "life": self._lives[record.topic],
                "queue": record.queue_id,
                "offset": record.queue_offset,
                "position": record.physical_offset,
                "stored": record.store_timestamp,
                "born": record.born_timestamp,
                "bytes": len(record.body),
                "key": pairs["UNIQ_KEY"],
                "keys": pairs.get("KEYS"),
                "pairs": pairs,
                "id": message_id(record.store_host, record.store_port, record.physical_offset),
                "reconsumed": record.reconsume_times,
                "leader": f"{record.store_host}:{record.store_port}",
            }
        )

    def _take_pops(self, head: Row, command: Any, before: dict[Any, Any]) -> None:
        queues = self._state[POPS].queues
        name = type(command).__name__

        def add(key: Any, offset: int, event: str, visible_ms: int | None = None) -> None:
            row = {"key": key, "life": self._lives[key[1]], "offset": offset, "event": event}
            row["visible_ms"] = visible_ms
            self.pop_events.append({**head, **row})

        if name == "Pop":
            flights, attempt = before.get(command.key, ({}, ""))
            if command.begins:
                flights, attempt = {}, ""
            repeats = bool(command.attempt_id) and command.attempt_id == attempt
            for offset in command.offsets:
                now: InFlight | None = queues[command.key].in_flight.get(offset)
                if now is not None and (flights.get(offset) != now or repeats):
                    add(command.key, offset, "given", command.visible_ms)
        elif name == "AckPopped":
            done = set()
            for one in command.messages:
                if _is_out(one, before) and one not in done:
                    done.add(one)
                    add(one.key, one.offset, "acknowledged")
        elif name == "HidePopped":
            one = command.message
            if queues[one.key].in_flight[one.offset] != before[one.key][0][one.offset] or (
                before[one.key][0][one.offset].visible_ms == command.visible_ms
            ):
                add(one.key, one.offset, "hidden", command.visible_ms)
        elif name == "BuryPopped":
            add(command.message.key, command.message.offset, "buried")

    # --- what follows from them ---------------------------------------------------------------

    def traffic(self) -> list[Row]:
        found: defaultdict[Any, list[int]] = defaultdict(list)
        for one in self.messages:
            key = (one["topic"], one["queue"], _floor(one["stored"], MINUTE_MS))
            found[key].append(one["bytes"])
        return [
            {
                "raft_group": self._group,
                "topic": topic,
                "queue": queue,
                "minute": minute,
                "messages": len(sizes),
                "bytes": sum(sizes),
                "le_1_kb": sum(size <= 1024 for size in sizes),
                "le_4_kb": sum(1024 < size <= 4096 for size in sizes),
            }
            for (topic, queue, minute), sizes in found.items()
        ]

    def consumer_lag(self) -> list[Row]:
        times = [*(one["stored"] for one in self.messages), *(one["ms"] for one in self.commands)]
        times += [one["ms"] for one in self.pop_events]
        now_ms = max(filter(None, times), default=0)
        return plain_lag(self.progress, self.popped, self.messages, now_ms)

    def latency(self) -> list[Row]:
        took: defaultdict[Any, list[int]] = defaultdict(list)
        for one in self.messages:
            minute = _floor(one["stored"], MINUTE_MS)
            took["stored", None, one["topic"], minute].append(one["stored"] - one["born"])
        commits = [
            one
            for one in self.progress
            if one["offset"] is not None and one["of"] == "CommitOffsets" and one["ms"] is not None
        ]
        commits.sort(key=lambda one: (one["ms"], one["index"]))
        acknowledged: dict[Any, int] = {}
        for one in self.pop_events:
            if one["event"] == "acknowledged" and one["ms"] is not None:
                key = one["key"], one["life"], one["offset"]
                acknowledged[key] = min(one["ms"], acknowledged.get(key, one["ms"]))
        for group in {one["key"][0] for one in self.progress}:
            for one in self.messages:
                key = (group, one["topic"], one["queue"])
                minute = _floor(one["stored"], MINUTE_MS)
                of_queue = [
                    step for step in commits if (step["key"], step["life"]) == (key, one["life"])
                ]
                known_ms = 0
                for step in of_queue:
                    if step["offset"] > one["offset"]:
                        ms = max(step["ms"] - one["stored"], 0)
                        took["committed", group, one["topic"], minute].append(ms)
                        ms = max(known_ms - one["stored"], 0)
                        took["uncommitted", group, one["topic"], minute].append(ms)
                        break
                    known_ms = step["ms"]
                done_ms = acknowledged.get((key, one["life"], one["offset"]))
                if done_ms is not None:
                    ms = max(done_ms - one["stored"], 0)
                    took["acknowledged", group, one["topic"], minute].append(ms)
        return [
            {
                "kind": kind,
                "consumer_group": group,
                "topic": topic,
                "minute": minute,
                "messages": len(ms),
                "p50_ms": _percentile(ms, 0.5),
                "p99_ms": _percentile(ms, 0.99),
                "max_ms": max(ms),
            }
            for (kind, group, topic, minute), ms in took.items()
        ]

    def retries(self) -> list[Row]:
        """Go through the log, and write down each step in the life of a failed message."""
        found: defaultdict[Any, list[tuple[str, Row, int]]] = defaultdict(list)
        by_place: dict[Any, tuple[str, Row]] = {}
        ladder: dict[int, tuple[Any, int]] = {}
        commands = {one["index"]: one["command"] for one in self.commands}
        events: dict[int, list[Row]] = defaultdict(list)
        for event in self.pop_events:
            events[event["index"]].append(event)
        letters: dict[Any, Any] = {}
        for index in sorted(entry.index for entry in self.entries):
            command: Any = commands.get(index)
            name = type(command).__name__
            if name in ("Deliver", "DropDelayed"):
                ladder.pop(command.position, None)
            for one in (one for one in self.messages if one["index"] == index):
                pairs, topic = one["pairs"], one["topic"]
                origin = pairs.get("ORIGIN_MESSAGE_ID", one["id"])
                by_place[topic, one["life"], one["queue"], one["offset"]] = origin, one
                to = pairs.get("REAL_TOPIC", "")
                if topic == "SCHEDULE_TOPIC_XXXX" and to.startswith("%RETRY%"):
                    key = to[7:], pairs.get("RETRY_TOPIC"), origin
                    if name == "MoveDelayed":
                        ladder[one["position"]] = ladder.pop(command.position)
                    else:
                        ladder[one["position"]] = key, command.due_ms
                        found[key].append(("sent back", one, one["stored"]))
                elif topic.startswith("%RETRY%") and name != "Redrive":
                    key = topic[7:], pairs.get("RETRY_TOPIC"), origin
                    if name != "Deliver":
                        found[key].append(("sent back", one, one["stored"]))
                    found[key].append(("again", one, one["stored"]))
                elif topic.startswith("%DLQ%") and "ORIGIN_MESSAGE_ID" in pairs:
                    key = topic[5:], pairs.get("RETRY_TOPIC"), origin
                    letters[topic, one["queue"], one["offset"]] = key, one
                    found[key].append(("dead", one, one["stored"]))
            if name == "Redrive":
                key, one = letters[command.topic, command.queue_id, command.offset]
                found[key].append(("redriven", one, one["stored"]))
        pops: defaultdict[Any, list[Row]] = defaultdict(list)
        for event in self.pop_events:
            group, topic, queue = event["key"]
            pops[group, (topic, event["life"], queue, event["offset"])].append(event)
        givings: dict[Any, int] = defaultdict(int)
        for (group, place), steps in pops.items():
            given = sum(one["event"] == "given" for one in steps)
            is_buried = any(one["event"] == "buried" for one in steps)
            if place in by_place and (given > 1 or is_buried):
                origin, one = by_place[place]
                key = group, one["pairs"].get("RETRY_TOPIC", place[0]), origin
                givings[key] += given
                without = {**one, "reconsumed": None}
                found[key] += [("again", without, step["ms"]) for step in steps[: given - 1]]
                found[key] += [("other", without, step["ms"]) for step in steps]
        rows = []
        for (group, topic, origin), steps_of in found.items():
            names = [step for step, _, _ in steps_of]
            waits = [due for key, due in ladder.values() if key == (group, topic, origin)]
            times = [one["reconsumed"] for _, one, _ in steps_of if one["reconsumed"] is not None]
            rows.append(
                {
                    **{"consumer_group": group, "topic": topic, "origin_message_id": origin},
                    **{"sent_back": names.count("sent back"), "waiting": len(waits)},
                    "due_time": min(waits, default=None),
                    "delivered_again": names.count("again"),
                    "given": givings.get((group, topic, origin)),
                    **{"dead": names.count("dead"), "redriven": names.count("redriven")},
                    "reconsume_times": max(times, default=None),
                    "first_time": min(ms for _, _, ms in steps_of),
                    "last_time": max(ms for _, _, ms in steps_of),
                }
            )
        return rows

    def dead_letters(self) -> list[Row]:
        redriven: dict[Any, int] = {}
        buried = {
            one["index"]: sum(
                (other["key"], other["life"], other["offset"], other["event"])
                == (one["key"], one["life"], one["offset"], "given")
                and other["index"] < one["index"]
                for other in self.pop_events
            )
            for one in self.pop_events
            if one["event"] == "buried"
        }
        for one in self.commands:
            command = one["command"]
            if type(command).__name__ == "Redrive":
                redriven.setdefault((command.topic, command.queue_id, command.offset), one["ms"])
        return [
            {
                "consumer_group": one["topic"][5:],
                "topic": one["pairs"].get("DLQ_ORIGIN_TOPIC") or one["pairs"].get("RETRY_TOPIC"),
                "offset": one["offset"],
                "dead_time": one["stored"],
                "given": buried.get(one["index"]),
                "reason": f"{'popped' if one['index'] in buried else 'sent back'} too often",
                "redriven_time": redriven.get((one["topic"], one["queue"], one["offset"])),
            }
            for one in self.messages
            if one["topic"].startswith("%DLQ%")
        ]

    def transactions(self) -> list[Row]:
        found: dict[int, Row] = {}
        stored = {one["position"]: one for one in self.messages}
        ends = {"Commit": "committed", "Rollback": "rolled back", "GiveUp": "given up"}
        for one in self.commands:
            command, name = one["command"], type(one["command"]).__name__
            if name == "Prepare":
                half = stored[one["position"]]
                found[one["position"]] = {
                    "position": one["position"],
                    "producer_group": command.group,
                    "topic": half["pairs"]["REAL_TOPIC"],
                    "begin_time": half["stored"],
                    "checks": 0,
                    "outcome": "open",
                    "resolved_ms": None,
                }
            elif name == "Checked":
                for position in command.positions:
                    unknown = {
                        "position": position,
                        "producer_group": None,
                        "topic": None,
                        "begin_time": None,
                        "checks": 0,
                        "outcome": "open",
                        "resolved_ms": None,
                    }
                    found.setdefault(position, unknown)["checks"] += 1
            elif name in ends:
                row = found[command.position]
                row["outcome"] = ends[name]
                row["resolved_ms"] = one["ms"] - row["begin_time"]
        return [row for row in found.values() if row["topic"] is not None]

    def delays(self) -> list[Row]:
        found: dict[int, Row] = {}
        origins: dict[int, int] = {}
        stored = {one["position"]: one for one in self.messages}
        for one in self.commands:
            command, name = one["command"], type(one["command"]).__name__
            due_ms = getattr(command, "due_ms", 0) if name in ("Delay", "Commit") else 0
            if due_ms:
                waits = stored[one["position"]]
                origins[one["position"]] = one["position"]
                found[one["position"]] = {
                    "position": one["position"],
                    "topic": waits["pairs"].get("REAL_TOPIC"),
                    "unique_key": waits["key"],
                    "due_time": due_ms,
                    "outcome": "waiting",
                    "late_ms": None,
                }
            if name == "MoveDelayed":
                origins[one["position"]] = origins.pop(command.position)
            elif name in ("Deliver", "DropDelayed"):
                row = found[origins.pop(command.position)]
                row["outcome"] = "delivered" if name == "Deliver" else "dropped"
                if name == "Deliver":
                    row["late_ms"] = stored[one["position"]]["stored"] - row["due_time"]
        return list(found.values())

    def pops(self) -> list[Row]:
        found: defaultdict[Any, list[Row]] = defaultdict(list)
        for one in self.pop_events:
            found[one["key"], one["life"], one["offset"]].append(one)
        rows = []
        for ((group, topic, queue), life, offset), steps in found.items():
            events, times = [one["event"] for one in steps], [one["ms"] for one in steps]
            outcome = events[-1] if events[-1] in ("acknowledged", "buried") else "out"
            rows.append(
                {
                    "consumer_group": group,
                    "topic": topic,
                    "topic_life": life,
                    "queue": queue,
                    "offset": offset,
                    "times": events.count("given"),
                    "hidden": events.count("hidden"),
                    "first_time": min(times),
                    "last_given_time": [one["ms"] for one in steps if one["event"] == "given"][-1],
                    "acknowledged_time": max(times) if outcome == "acknowledged" else None,
                    "buried_time": max(times) if outcome == "buried" else None,
                    "outcome": outcome,
                }
            )
        return rows

    def elections(self) -> list[Row]:
        rows = []
        before: int | None = None
        for term in sorted({entry.term for entry in self.entries}):
            of_term = [entry.index for entry in self.entries if entry.term == term]
            sent = [one for one in self.messages if one["term"] == term]
            first = min((one["stored"] for one in sent), default=None)
            leaders = [
                one["command"].node_id
                for one in self.commands
                if type(one["command"]).__name__ == "LeadFrom" and one["index"] in of_term
            ] or [one["leader"] for one in sent]
            rows.append(
                {
                    "term": term,
                    "leader": max(leaders, default=None),
                    "first_index": of_term[0],
                    "last_index": of_term[-1],
                    "entries": len(of_term),
                    "messages": len(sent),
                    "gap_ms": None if first is None or before is None else first - before,
                }
            )
            before = max((one["stored"] for one in sent), default=before)
        return rows

    def hot_keys(self) -> list[Row]:
        found: defaultdict[Any, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for one in self.messages:
            for key in (one["keys"] or "").split(" "):
                if key:
                    found[one["topic"], _floor(one["stored"], TEN_MINUTES_MS)][key] += 1
        return [
            {"topic": topic, "since": since, "place": place + 1, "key": key, "messages": count}
            for (topic, since), counts in found.items()
            for place, (key, count) in enumerate(
                sorted(counts.items(), key=lambda c: (-c[1], c[0]))
            )
            if place < 20
        ]

    def audit(self) -> list[Row]:
        return [
            {
                **{"index": one["index"], "time": one["ms"]},
                **{"user_name": one["command"].user, "peer": one["command"].peer},
                **{"request": one["command"].request, "about": one["command"].about},
            }
            for one in self.commands
            if type(one["command"]).__name__ == "AuditRequest"
        ]

    def trace(self) -> list[Row]:
        rows = []
        names = {
            "RMQ_SYS_TRANS_HALF_TOPIC": "prepared",
            "SCHEDULE_TOPIC_XXXX": "delayed",
            "%RETRY%g": "sent back",
            "%DLQ%g": "dead",
        }
        done = {one["index"]: one["command"] for one in self.commands}
        by_place = {}
        by_position = {one["position"]: one for one in self.messages}
        for one in self.messages:
            event, due = names.get(one["topic"], "stored"), None
            command = done.get(one["index"])
            kind = type(command).__name__
            is_of_group = one["topic"] == "%RETRY%g"
            if event == "delayed":
                due = getattr(command, "due_ms", None)
                if one["pairs"].get("REAL_TOPIC") == "%RETRY%g":
                    event, is_of_group = "sent back", True
            if kind == "MoveDelayed":
                event = "moved"
            elif kind == "Redrive":
                event = "redriven"
            elif kind == "Deliver" and one["topic"] == "%RETRY%g":
                event = "delivered again"
            group = "g" if is_of_group or event == "dead" else None
            rows.append((one["key"], one["stored"], one["index"], event, group, due))
            by_place[one["topic"], one["life"], one["queue"], one["offset"]] = one["key"]
        for one in self.pop_events:
            _, topic, queue = one["key"]
            key = by_place.get((topic, one["life"], queue, one["offset"]))
            if key is not None:
                more = one["key"][0], one["visible_ms"]
                rows.append((key, one["ms"], one["index"], one["event"], *more))
        origins: dict[int, int] = {}
        for one in self.commands:
            command, name = one["command"], type(one["command"]).__name__
            positions: tuple[int, ...] = getattr(
                command, "positions", (getattr(command, "position", -1),)
            )
            ended = {
                "Checked": "checked",
                "Rollback": "rolled back",
                "GiveUp": "given up",
                "DropDelayed": "recalled",
            }.get(name)
            if name == "MoveDelayed":
                origins[one["position"]] = origins.get(command.position, command.position)
            for position in positions:
                origin = by_position.get(origins.get(position, position))
                if ended is not None and origin is not None:
                    rows.append((origin["key"], one["ms"], one["index"], ended, None, None))
        names_of_columns = ("unique_key", "time", "index", "event", "consumer_group", "due_time")
        return [dict(zip(names_of_columns, row, strict=True)) for row in rows]


def _progress(state: BrokerState) -> dict[tuple[str, str, int], int]:
    return {
        (*key, queue): offset
        for key, of in state[OFFSETS].tables.items()
        for queue, offset in of.items()
    }


def plain_lag(
    progress: list[Row], popped: list[Row], messages: list[Row], now_ms: int
) -> list[Row]:
    """Ask at the end of every minute of a log: what waits, and since when?"""
    rows = []
    for key, life in {(one["key"], one["life"]) for one in progress}:
        # Before the first message of a log there is no time.
        moves = [one for one in _at((key, life), progress) if one["ms"] is not None]
        pops = [one for one in _at((key, life), popped) if one["ms"] is not None]
        place = (key[1], life, key[2])
        sent = [one for one in messages if (one["topic"], one["life"], one["queue"]) == place]
        steps = {_floor(one["ms"], MINUTE_MS) for one in moves + pops}
        if not steps:
            continue
        events = steps | {_floor(one["stored"], MINUTE_MS) for one in sent}
        last = max(*events, _floor(now_ms, MINUTE_MS))
        event = min(steps)
        for minute in range(min(steps), last + 1, MINUTE_MS):
            event = minute if minute in events else event
            quiet = (minute - event) // MINUTE_MS
            is_shown = quiet <= 1440 or (quiet % 60 == 0 and quiet <= 527_040)
            if not is_shown and minute != last and minute + MINUTE_MS not in events:
                continue
            end_ms = minute + MINUTE_MS
            before = [one for one in moves if one["ms"] < end_ms]
            if not before:
                continue
            offset = max(before, key=lambda one: one["index"])["offset"]
            if offset is None:
                continue
            end = max((one["offset"] + 1 for one in sent if one["stored"] < end_ms), default=0)
            waits = max(end - offset, 0)
            left = [one for one in pops if one["ms"] < end_ms]
            if left and (had := max(left, key=lambda one: one["index"])["left"]) is not None:
                offset, next_offset, flights = had
                waits = flights + max(end - next_offset, 0)
            if not waits and event != minute:
                continue
            first = [one for one in sent if one["offset"] == offset and one["stored"] < end_ms]
            since = first[-1]["stored"] if waits and first else None
            now = min(end_ms, max(now_ms, minute))
            rows.append(
                {
                    **{"consumer_group": key[0], "topic": key[1], "queue": key[2]},
                    **{"minute": minute, "consumer_offset": offset, "queue_end": end},
                    "lag_messages": waits,
                    "lag_ms": (None if since is None else max(now - since, 0)) if waits else 0,
                    "waiting_since": since,
                }
            )
    return rows


def _popped(state: BrokerState) -> dict[Any, tuple[int, int, int]]:
    """What the next pop of each queue would begin with: the first message, the first new one, and
    how many come again if they are not acknowledged.
    """
    found = {}
    offsets = state[OFFSETS]
    for key, queue in state[POPS].queues.items():
        group, topic, number = key
        at = offsets.resets.get((group, topic), {}).get(number)
        ahead = offsets.tables.get((group, topic), {}).get(number, 0)
        if at is None and ahead > queue.next_offset:
            at = ahead
        flights = frozenset(queue.in_flight if at is None else ())
        next_offset = queue.next_offset if at is None else at
        found[key] = min(flights, default=next_offset), next_offset, len(flights)
    return found


def _at(place: tuple[Any, int], rows: list[Row]) -> list[Row]:
    return [one for one in rows if (one["key"], one["life"]) == place]


def _floor(ms: int, unit: int) -> int:
    return ms - ms % unit


def _percentile(values: list[int], share: float) -> float:
    """The value at a share of the way through the sorted ones."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[floor(place)], ordered[ceil(place)]
    return low + (high - low) * (place - floor(place))


def _is_out(message: Any, pops: Any) -> bool:
    """Whether a message was out, given at that time, before its command."""
    flight = pops.get(message.key, ({}, ""))[0].get(message.offset)
    return flight is not None and flight.popped_ms == message.popped_ms
