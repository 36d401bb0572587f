"""Which client of RocketMQ 5's gRPC protocol does what: all features of those it has."""

from collections.abc import Callable

from tests.clients import (
    grpc_beside_remoting,
    grpc_failures,
    grpc_lite,
    grpc_messages,
    grpc_pushes,
    grpc_stage,
    grpc_times,
)
from tests.clients.client_script import Failed
from tests.clients.driver import Came
from tests.clients.grpc_stage import Stage
from tests.clients.grpc_toolchains import GRPC_CLIENTS, GRPC_TITLES
from tests.clients.mqadmin import Expected
from tests.clients.scenarios import LONG, Place, Scenario
from tests.clients.toolchains import GrpcClient

Feature = Callable[[Stage], str | None]

FEATURES: dict[str, Feature] = {
    "recovers an orphan": grpc_times.recovers_an_orphan,
    "transacts": grpc_times.transacts,
    "takes over": grpc_failures.takes_over,
    "sends and receives": grpc_messages.sends_and_receives,
    "sends bodies of all sizes": grpc_messages.sends_all_sizes,
    "sends 64 at once": grpc_messages.sends_at_once,
    "gets again what it did not acknowledge": grpc_messages.gets_again,
    "changes invisible times": grpc_messages.changes_invisible_time,
    "is woken": grpc_messages.is_woken,
    "pushes": grpc_pushes.pushes,
    "pushes again what failed": grpc_pushes.push_retries,
    "pushes to two groups": grpc_pushes.two_groups,
    "filters by tags": grpc_pushes.filters_by_tag,
    "filters by SQL": grpc_pushes.filters_by_sql,
    "pushes in order": grpc_pushes.in_order,
    "pushes in order what failed": grpc_pushes.in_order_after_failures,
    "receives in order": grpc_pushes.in_order_simply,
    "gives up": grpc_times.dead_letters,
    "gives up in order": grpc_pushes.dead_letters_in_order,
    "sends for later": grpc_times.delays,
    "recalls": grpc_times.recalls,
    "is refused a large body": grpc_messages.is_refused_a_large_body,
    "is refused an unknown topic": grpc_messages.is_refused_an_unknown_topic,
    "is refused a wrong type": grpc_messages.is_refused_a_wrong_type,
    "reads what remoting sent": grpc_beside_remoting.reads_remoting,
    "is read by remoting": grpc_beside_remoting.is_read_by_remoting,
    "speaks TLS": grpc_failures.speaks_tls,
    "reads lite topics": grpc_lite.reads_lite_topics,
    "fails in a lite topic, in order": grpc_lite.retries_in_order,
    "is refused too many lite topics": grpc_lite.is_refused_too_many,
    "takes over lite topics": grpc_lite.takes_over_lite_topics,
    "reads all lite topics": grpc_lite.reads_all_lite_topics,
    "receives from lite topics": grpc_lite.receives_lite_topics,
    "lives through the end of a proxy": grpc_failures.survives_the_end_of_a_proxy,
    "lives through the death of a proxy": grpc_failures.survives_the_death_of_a_proxy,
}

# These wait for a quarter of an hour.
WAITING: dict[str, Feature] = {
    "sees lite topics end": grpc_lite.sees_lite_topics_end,
}

ALONE: dict[str, Feature] = {
    "keeps lite topics through a leader's death": grpc_lite.keeps_lite_topics_through_a_death,
    "lives through a leader's death by gRPC": grpc_failures.survives_a_leader,
}

NO_PUSH = "has no push consumer"
NO_LITE = "has no consumer of lite topics"
NO_LITE_SIMPLE = "has no simple consumer of lite topics"
BEHIND_FAILURES = "goes on with the messages of its batch behind one that failed"

# What a client cannot do, and why.
HAS_NONE: dict[tuple[GrpcClient, str], str] = {
    **{
        ("rust5", what): NO_PUSH
        for what in (
            *("pushes", "pushes again what failed", "pushes to two groups", "pushes in order"),
            *("pushes in order what failed", "gives up in order"),
        )
    },
    **{
        ("rust5", what): NO_LITE
        for what in (
            *("reads lite topics", "fails in a lite topic, in order", "takes over lite topics"),
            *("is refused too many lite topics", "reads all lite topics", "sees lite topics end"),
            "keeps lite topics through a leader's death",
        )
    },
    **{
        (client, "receives from lite topics"): NO_LITE_SIMPLE
        for client in GRPC_CLIENTS
        if client != "python5"
    },
    ("rust5", "changes invisible times"): "has no such call",
    ("rust5", "recalls"): "has no such call",
    ("rust5", "speaks TLS"): "has an option that does nothing",
    ("go5", "pushes in order what failed"): BEHIND_FAILURES,
    ("go5", "gives up in order"): BEHIND_FAILURES,
    ("go5", "fails in a lite topic, in order"): BEHIND_FAILURES,
    ("python51", "is refused too many lite topics"): "keeps refusals for itself",
    ("python51", "reads all lite topics"): "says nothing to the proxy before it has named one",
}


def featured(
    client: GrpcClient, what: str, feature: Feature, *, alone: bool = False, waits: bool = False
) -> Scenario:
    """A feature of a client."""

    def run(place: Place) -> str | None:
        return feature(Stage(place, client))

    return Scenario(
        f"{GRPC_TITLES[client]} {what}", (client,), run, breaks_things=alone, waits=waits
    )


def reads_compressed(client: GrpcClient) -> Scenario:
    """What another client of remoting compressed."""

    def run(place: Place) -> None:
        stage = Stage(place, client)
        stage.make_topic()
        with stage.driver() as driver:
            driver.consumer("simple", stage.group, stage.topic, wait_s=grpc_stage.NOTHING_S)
            place.send("cpp", *LONG)
            came = driver.collect(20, grpc_stage.SOON_S)
            for one in came:
                check_long(one)
            if len({one.key for one in came}) != 20:
                raise Failed(f"keys came twice: {sorted(one.key for one in came)}")

    return Scenario(f"C++ sends 5 KB to {GRPC_TITLES[client]}", (client, "cpp"), run)


def check_long(came: Came) -> None:
    """Check a body of the C++ program: its key, padded."""
    if len(came.body) != 5000 or not came.body.startswith(came.key.encode()):
        raise Failed(f"{came.key} came with {len(came.body)} bytes: {came.body[:40]!r}")


# What the tools show of a consumer's threads. The client in Python does not answer, so they fail.
STACKS: dict[GrpcClient, str] = {
    "python5": r"Exception",
    "node5": r"(?i)#Consumer jstack#\s*\S",
    "java52": r"#Consumer jstack#(?s:.)*java\.",
    "go5": r"(?i)#Consumer jstack#(?s:.)*goroutine",
}


def seen_by_operators(client: GrpcClient) -> Scenario:
    """RocketMQ's tools show a consumer that came through a proxy, and ask it for its stacks."""

    def run(place: Place) -> str:
        stage = Stage(place, client)
        stage.make_topic()
        with stage.driver() as driver:
            driver.consumer("push", stage.group, stage.topic)
            mqadmin = place.mqadmin("java5")
            shown = mqadmin.until(
                Expected("consumerConnection -g {group}", r"(?m)^(\S+@\S+)\s(?s:.)*{topic}\s+\*")
            )
            state = f"consumerStatus -g {{group}} -i {shown[1]}"
            mqadmin.check(Expected(state, r"PROP_CONSUME_TYPE\s*:\s*CONSUME_PASSIVELY"))
            mqadmin.check(Expected(f"{state} -s", STACKS[client]))
        return f"{shown[1]}"

    return Scenario(f"mqadmin 5.3.3 asks {GRPC_TITLES[client]}", (client, "java5"), run)


def can(client: GrpcClient, what: str) -> bool:
    """Whether a client has a feature."""
    return (client, what) not in HAS_NONE


GRPC_SCENARIOS = (
    *(
        featured(client, what, feature, waits=what in WAITING)
        for what, feature in (WAITING | FEATURES).items()
        for client in GRPC_CLIENTS
        if can(client, what)
    ),
    *map(reads_compressed, GRPC_CLIENTS),
    *map(seen_by_operators, STACKS),
    *(
        featured(client, what, feature, alone=True)
        for what, feature in ALONE.items()
        for client in GRPC_CLIENTS
        if can(client, what)
    ),
)
