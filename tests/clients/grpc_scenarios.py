"""Which client of RocketMQ 5's gRPC protocol does what: all features of those it has."""

from collections.abc import Callable

from tests.clients import grpc_features as features
from tests.clients.client_script import Failed
from tests.clients.driver import Came
from tests.clients.grpc_features import Feature, Stage
from tests.clients.grpc_toolchains import GRPC_TITLES
from tests.clients.scenarios import LONG, Place, Scenario
from tests.clients.toolchains import GrpcClient

FEATURES: dict[str, Feature] = {
    "recovers an orphan": features.recovers_an_orphan,
    "transacts": features.transacts,
    "takes over": features.takes_over,
    "sends and receives": features.sends_and_receives,
    "sends bodies of all sizes": features.sends_all_sizes,
    "sends 64 at once": features.sends_at_once,
    "gets again what it did not acknowledge": features.gets_again,
    "changes invisible times": features.changes_invisible_time,
    "is woken": features.is_woken,
    "pushes": features.pushes,
    "pushes again what failed": features.push_retries,
    "pushes to two groups": features.two_groups,
    "filters by tags": features.filters_by_tag,
    "filters by SQL": features.filters_by_sql,
    "pushes in order": features.in_order,
    "receives in order": features.in_order_simply,
    "gives up": features.dead_letters,
    "gives up in order": features.dead_letters_in_order,
    "sends for later": features.delays,
    "recalls": features.recalls,
    "is refused a large body": features.is_refused_a_large_body,
    "is refused an unknown topic": features.is_refused_an_unknown_topic,
    "is refused a wrong type": features.is_refused_a_wrong_type,
    "reads what remoting sent": features.reads_remoting,
    "is read by remoting": features.is_read_by_remoting,
    "speaks TLS": features.speaks_tls,
    "lives through the end of a proxy": features.survives_the_end_of_a_proxy,
    "lives through the death of a proxy": features.survives_the_death_of_a_proxy,
}

ALONE: dict[str, Feature] = {
    "lives through a leader's death by gRPC": features.survives_a_leader,
}

NO_PUSH = "has no push consumer"

# What a client cannot do, and why.
HAS_NONE: dict[tuple[GrpcClient, str], str] = {
    **{
        ("rust5", what): NO_PUSH
        for what in (
            *("pushes", "pushes again what failed", "pushes to two groups", "pushes in order"),
            "gives up in order",
        )
    },
    ("rust5", "changes invisible times"): "has no such call",
    ("rust5", "recalls"): "has no such call",
    ("rust5", "speaks TLS"): "has an option that does nothing",
    ("go5", "recalls"): "has no such call in 5.1.3",
}


def featured(client: GrpcClient, what: str, feature: Feature, *, alone: bool = False) -> Scenario:
    """A feature of a client."""

    def run(place: Place) -> str | None:
        return feature(Stage(place, client))

    return Scenario(f"{GRPC_TITLES[client]} {what}", (client,), run, breaks_things=alone)


def reads_compressed(client: GrpcClient) -> Scenario:
    """What another client of remoting compressed."""

    def run(place: Place) -> None:
        stage = Stage(place, client)
        stage.make_topic()
        with stage.driver() as driver:
            driver.consumer("simple", stage.group, stage.topic, wait_s=features.NOTHING_S)
            place.send("cpp", *LONG)
            came = driver.collect(20, features.SOON_S)
            for one in came:
                check_long(one)
            if len({one.key for one in came}) != 20:
                raise Failed(f"keys came twice: {sorted(one.key for one in came)}")

    return Scenario(f"C++ sends 5 KB to {GRPC_TITLES[client]}", (client, "cpp"), run)


def check_long(came: Came) -> None:
    """Check a body of the C++ program: its key, padded."""
    if len(came.body) != 5000 or not came.body.startswith(came.key.encode()):
        raise Failed(f"{came.key} came with {len(came.body)} bytes: {came.body[:40]!r}")


def of_all(what: str, make: Callable[[GrpcClient], Scenario]) -> tuple[Scenario, ...]:
    """A scenario of each client that can."""
    return tuple(make(client) for client in GRPC_TITLES if (client, what) not in HAS_NONE)


GRPC_SCENARIOS = (
    *(
        scenario
        for what, feature in FEATURES.items()
        for scenario in of_all(
            what, lambda client, what=what, feature=feature: featured(client, what, feature)
        )
    ),
    *of_all("reads what C++ compressed", reads_compressed),
    *(
        scenario
        for what, feature in ALONE.items()
        for scenario in of_all(
            what,
            lambda client, what=what, feature=feature: featured(
                client, what, feature, alone=True
            ),
        )
    ),
)
