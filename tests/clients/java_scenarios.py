"""What the Java clients must be able to do.

Each runs as a method `Noun.verb` of `java/`, many in one process. There it compares what was
acknowledged with what came, and fails, or says what it saw.
"""

from tests.clients.toolchains import Client

OF_BOTH: dict[str, str] = {
    "sends one by one": "Sends.oneByOne",
    "sends asynchronously": "Sends.asynchronously",
    "sends oneway": "Sends.oneway",
    "sends a batch": "Sends.batch",
    "sends to chosen queues": "Sends.selected",
    "sends a megabyte": "Sends.large",
    "transacts": "Transactions.committedRolledBackAndAsked",
    "consumes in order": "Orders.suspended",
    "consumes in order, changing hands": "Orders.movedToAnotherConsumer",
    "broadcasts": "Broadcasts.toThree",
    "pulls what it subscribed to": "LitePulls.subscribed",
    "pulls what it was assigned": "LitePulls.assigned",
    "fails, and gets 5 KB again": "Retries.again",
    "gives up on messages": "Retries.deadLetters",
    "gives up on a message in order": "Retries.deadLettersInOrder",
    "sends for later": "Delays.byLevel",
    "consumes two tags of three": "Filters.byTags",
    "consumes by a condition": "Filters.byCondition",
    "is refused a wrong condition": "Filters.byNonsense",
    "asks, and is called back": "Requests.calledBack",
    "asks in vain": "Requests.unanswered",
    "finds messages": "Queries.byKeyAndIds",
    "asks for offsets": "Queries.offsets",
    "is moved to the beginning": "Resets.toTheBeginning",
    "traces": "Traces.ofProducerAndConsumer",
    "uses a namespace": "Namespaces.ofNames",
}

OF_ONE: dict[Client, dict[str, str]] = {
    # The client of 5.3 takes the acknowledgement for the end of its time (apache/rocketmq#9319).
    "java4": {"asks, and waits": "Requests.waiting"},
    "java5": {
        "sends for any time": "Timers.onTime",
        "recalls": "Timers.recalled",
        "compresses by LZ4, ZSTD and ZLIB": "Compressions.byEachType",
        "pops, more consumers than queues": "Pops.shared",
        "pops, fails, and pops again": "Pops.again",
        "pops, and is too slow": "Pops.heldTooLong",
        "pops, and then pulls": "Pops.backToPulls",
        "uses a namespace of version 2": "NamespacesV2.ofHeaders",
    },
}

# These run on groups that take only connections with TLS, or only requests that are signed.
PROTECTED: tuple[str, ...] = (
    *("Sends.oneByOne", "Sends.large", "Orders.suspended"),
    *("Transactions.committedRolledBackAndAsked", "Retries.again"),
)

# These run at once while a leader is killed.
THROUGH_A_DEATH: dict[Client, tuple[str, ...]] = {
    "java4": ("Failovers.inOrder", "Failovers.transactions", "Failovers.delays"),
    "java5": (
        "Failovers.inOrder",
        "Failovers.transactions",
        "Failovers.delays",
        "PopFailovers.shared",
    ),
}


def java_scenarios(client: Client) -> dict[str, str]:
    """What a version must do: how it is called, and the method that does it."""
    return OF_BOTH | OF_ONE[client]
