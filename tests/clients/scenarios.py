"""What clients written by others must be able to do."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from remoting.net.access_file import read_credentials
from remoting.wire.signature import Credentials
from tests.clients.client_script import ClientScript, Failed
from tests.clients.java_process import JavaProcess, JavaProcesses
from tests.clients.java_scenarios import PROTECTED, THROUGH_A_DEATH, java_scenarios
from tests.clients.local_cluster import UP, LocalCluster
from tests.clients.local_proxy import SharedProxy
from tests.clients.mqadmin import Expected, Mqadmin
from tests.clients.operators import (
    MESSAGES,
    ON_USERS,
    OPERATIONS,
    WITH_A_WRONG_SECRET,
    Operation,
    closes_a_broker_for_sends,
)
from tests.clients.toolchains import JAVA_VERSIONS, TITLES, Client, Toolchains

QUEUES = 4
TRIES = 3
SEND_S = 60
CONSUME_S = 90

# The C++ client looks for a retry topic at its next poll of routes, and all clients learn a new
# leader's address only then: each 30 seconds.
FAILOVER_S = 150

# A Go producer says only every 30 seconds that it is there to be asked.
TRANSACT_S = 120

# The Java scenarios that a leader dies in send for six seconds.
UNTIL_DEATH_S = 3

USER = "orders-service"

# By a consumer that is allowed to: the clients poll at once, or each second.
UNTIL_DELIVERED_S = 5

# Each step of a scenario in Java has a minute, and transactions a little more.
JAVA_S = 240


@dataclass(frozen=True)
class Place:
    """What a scenario runs on.

    Attributes:
        cluster: the brokers.
        toolchains: the clients.
        java: processes that run many scenarios.
        proxy: for clients of gRPC.
        folder: for its files.
        topic: a topic of its own.
        credentials: what its programs sign by, if they do.
    """

    cluster: LocalCluster
    toolchains: Toolchains
    java: JavaProcesses
    proxy: SharedProxy
    folder: Path
    topic: str
    credentials: Credentials | None = None

    @property
    def group(self) -> str:
        """The group of its consumers."""
        return f"{self.topic}-readers"

    def make_topic(self) -> None:
        """Make its topic, which programs that run in Java make by themselves.

        On a busy machine a leader may step down meanwhile, so it is tried again.
        """
        for left in reversed(range(TRIES)):
            try:
                self.cluster.command("topic", "create", self.topic, "--queues", str(QUEUES))
                return
            except Failed:
                if not left:
                    raise

    def mqadmin(self, client: Client) -> Mqadmin:
        """The operator's command of a version of Java."""
        return Mqadmin(self.java.of(client, "mqadmin"), self.topic, self.group)

    def send(self, client: Client, *arguments: str) -> None:
        """Send the messages of the run to their end."""
        with self.sending(client, *arguments) as script:
            script.succeed(SEND_S)

    def sending(self, client: Client, *arguments: str) -> ClientScript:
        """Begin to send; one by one, unless the first argument is another mode."""
        mode = (
            arguments if arguments and not arguments[0].startswith("--") else ("sync", *arguments)
        )
        where = (self.cluster.names, self.topic, self.topic)
        return ClientScript(
            self.toolchains[client], self.folder, "send", *where, *mode, *self._signing
        )

    def consuming(self, client: Client, *arguments: str) -> ClientScript:
        """Begin to consume, in the group of the run."""
        where = (self.cluster.names, self.topic, self.group, self.topic)
        options = (*arguments, *self._signing)
        return ClientScript(self.toolchains[client], self.folder, "consume", *where, *options)

    @property
    def _signing(self) -> tuple[str, ...]:
        if self.credentials is None:
            return ()
        return ("--credentials", f"{self.credentials.access_key}:{self.credentials.secret_key}")


@dataclass(frozen=True)
class Scenario:
    """One thing that must work.

    Attributes:
        name: what it is.
        clients: those that take part.
        run: does it; may say what it saw; raises `Failed`.
        breaks_things: others must not run at the same time.
        starts_processes: it costs the start of some programs.
        waits: it does nothing for minutes.
    """

    name: str
    clients: tuple[Client, ...]
    run: Callable[[Place], str | None]
    breaks_things: bool = False
    starts_processes: bool = True
    waits: bool = False


def none_twice(reader: ClientScript) -> None:
    """Nothing failed, so nothing may come twice."""
    again = [line for line in reader.words() if line.startswith("again ")]
    if again:
        raise Failed(f"{len(again)} keys came twice, the first: {again[0].removeprefix('again ')}")


def in_order(reader: ClientScript) -> None:
    """Even numbers were sent to one queue and odd ones to another: each must come in order."""
    numbers = [int(line.rpartition("-")[2]) for line in reader.words() if line[-1:].isdigit()]
    for parity in (0, 1):
        queue = [number for number in numbers if number % 2 == parity]
        if queue != sorted(queue):
            raise Failed(f"a queue came out of order: {queue}")


def sent_and_pulled(client: Client, *arguments: str) -> Callable[[Place], None]:
    """A client sends in a mode, and its pull consumer finds every message once."""

    def run(place: Place) -> None:
        place.send(client, *arguments)
        with place.consuming(client, "--pull") as reader:
            reader.succeed(CONSUME_S)
            none_twice(reader)

    return run


def sent_and_pushed(
    sender: Client, reader: Client, *, sending: tuple[str, ...] = (), reading: tuple[str, ...] = ()
) -> Callable[[Place], None]:
    """One client sends while the other's push consumer runs, which gets every message once."""

    def run(place: Place) -> None:
        with place.consuming(reader, *reading) as script:
            script.wait_until_ready()
            place.send(sender, *sending)
            script.succeed(CONSUME_S)
            none_twice(script)
            if "--orderly" in reading:
                in_order(script)

    return run


def delayed(client: Client, delay_s: float, *sending: str) -> Callable[[Place], None]:
    """A client sends messages for later; none comes before."""

    def run(place: Place) -> None:
        with place.consuming(client) as script:
            script.wait_until_ready()
            began = time.monotonic()
            place.send(client, *sending)
            script.succeed(CONSUME_S)
            none_twice(script)
            if time.monotonic() - began < delay_s:
                raise Failed(f"the messages came before {delay_s} s")

    return run


def transacted(client: Client) -> Callable[[Place], None]:
    """Of four messages, the first is committed and the third when the broker asks."""

    def run(place: Place) -> None:
        with place.consuming(client, "--expect", "10", "--seconds", "120") as script:
            script.wait_until_ready()
            with place.sending(client, "transaction") as sender:
                sender.succeed(TRANSACT_S)
            script.succeed(CONSUME_S)
            none_twice(script)
            odd = [line for line in script.words() if line[-1:] in "13579" and "-" in line]
            if odd:
                raise Failed(f"a message came that was rolled back: {odd[0]}")

    return run


def counted(client: Client) -> Callable[[Place], str]:
    """What a client sends and consumes is counted by topic and group (315), as mqadmin shows it."""

    def run(place: Place) -> str:
        with place.consuming(client) as script:
            script.wait_until_ready()
            place.send(client)
            script.succeed(CONSUME_S)
        waiting, a_second, of_the_day = r"\s+0", r"\s+[\d.]+", rf"\s+{MESSAGES}\b"
        row = rf"(?m)^{{topic}}\s+{{group}}{waiting}{2 * a_second}{2 * of_the_day}"
        place.mqadmin("java5").until(Expected("statsAll -t {topic}", row))
        return f"{MESSAGES} sent and {MESSAGES} consumed are counted, none waits"

    return run


def broadcast(client: Client) -> Callable[[Place], None]:
    """Two broadcasting consumers of one group each get every message once."""

    def run(place: Place) -> None:
        with (
            place.consuming(client, "--broadcast") as first,
            place.consuming(client, "--broadcast") as second,
        ):
            first.wait_until_ready()
            second.wait_until_ready()
            time.sleep(1)  # "ready" is said before the first offset of a queue is asked for
            place.send(client)
            for reader in (first, second):
                reader.succeed(CONSUME_S)
                none_twice(reader)

    return run


def leader_killed(sender: Client, reader: Client) -> Callable[[Place], None]:
    """The leader's process is killed while messages flow; every key is sent and received."""

    def run(place: Place) -> None:
        expected = ("--expect", "60", "--seconds", str(FAILOVER_S))
        with place.consuming(reader, *expected) as script:
            script.wait_until_ready()
            with place.sending(sender, "--count", "60", "--pause", "0.1", "--tries", "90") as sent:
                time.sleep(2)
                place.cluster.kill_leader()
                sent.succeed(FAILOVER_S)
            script.succeed(FAILOVER_S)

    return run


MIXED = ("--count", "21", "--tags", "red,green,blue")
TWO_OF_THREE = ("--expect", "14", "--tags", "red || blue")
THIRD = ("--expect", "7", "--sql", "n BETWEEN 7 AND 13 AND TAGS IS NOT NULL")
LONG = ("--size", "5000")
MEGABYTE = ("--size", "1000000")


def with_every_mode(client: Client, *, pulls: bool = True) -> Iterator[Scenario]:
    """What a client that has all the modes must be able to do; what it sent is pulled or pushed."""
    title = TITLES[client]
    for mode, what in (
        ("sync", "sends one by one"),
        ("async", "sends asynchronously"),
        ("oneway", "sends oneway"),
        ("orderly", "sends in order"),
        ("batch", "sends a batch"),
    ):
        if pulls:
            yield Scenario(f"{title} {what}, and pulls", (client,), sent_and_pulled(client, mode))
        else:
            pushed = sent_and_pushed(client, client, sending=(mode,))
            yield Scenario(f"{title} {what}", (client,), pushed)
    pushes: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        ("consumes two tags of three", MIXED, TWO_OF_THREE),
        ("consumes in order", ("orderly",), ("--orderly",)),
        ("fails, and gets 5 KB again", LONG, ("--fail-first", "2")),
    )
    for what, sending, reading in pushes:
        yield Scenario(
            f"{title} {what}",
            (client,),
            sent_and_pushed(client, client, sending=sending, reading=reading),
        )
    yield Scenario(f"{title} broadcasts", (client,), broadcast(client))


def compressed(sender: Client, reader: Client) -> Scenario:
    """One client compresses bodies, another one reads them."""
    return Scenario(
        f"{TITLES[sender]} sends 5 KB to {TITLES[reader]}",
        (sender, reader),
        sent_and_pushed(sender, reader, sending=LONG),
    )


def with_leader_killed(sender: Client, reader: Client) -> Scenario:
    """Nothing else runs while the leader dies."""
    name = f"{TITLES[reader]} lives through a leader's death"
    return Scenario(name, (sender, reader), leader_killed(sender, reader), breaks_things=True)


def in_java(client: Client, what: str, method: str) -> Scenario:
    """A scenario that runs within the process of a version of Java."""

    def run(place: Place) -> str:
        process = place.java.of(client, "scenarios")
        return process.ask((method, place.topic), JAVA_S)

    return Scenario(f"{TITLES[client]} {what}", (client,), run, starts_processes=False)


def over_tls(client: Client) -> Scenario:
    """A client speaks TLS, checks servers and shows a certificate, on a group of its own."""

    def run(place: Place) -> str:
        certificates = place.folder / "certificates"
        place.cluster.command("certificates", str(certificates))
        settings = place.folder / "tls.properties"
        settings.write_text(
            "tls.test.mode.enable=false\n"
            "tls.client.authServer=true\n"
            f"tls.client.trustCertPath={certificates / 'authority.pem'}\n"
            f"tls.client.certPath={certificates / 'client.pem'}\n"
            f"tls.client.keyPath={certificates / 'client-key.pem'}\n"
        )
        options = ("-Dtls.enable=true", f"-Dtls.config.file={settings}")
        with LocalCluster(place.folder, f"{UP} --tls-dir {certificates}") as cluster:
            return in_java_of_its_own(replace(place, cluster=cluster), client, *options)

    return Scenario(f"{TITLES[client]} speaks TLS", (client,), run)


def in_java_of_its_own(place: Place, client: Client, *options: str) -> str:
    """The scenarios of groups with protection, in a process that is started with options."""
    java, *words = place.toolchains[client].programs["scenarios"]
    process = JavaProcess((java, *options, *words, place.cluster.names), place.folder, client)
    try:
        return "; ".join(
            process.ask((method, f"{place.topic}-{number}"), JAVA_S)
            for number, method in enumerate(PROTECTED)
        )
    finally:
        process.kill()


def signed(client: Client) -> Scenario:
    """A client signs, on a group of its own with access control.

    It can do what its user may. A wrong secret is refused, and so is a topic until there is a rule
    for it, which counts for what runs already.
    """

    def run(place: Place) -> str:
        topic = place.topic
        with LocalCluster(place.folder, f"{UP} --access-control") as cluster:

            def allow(resource: str, actions: str) -> None:
                cluster.command("user", "allow", USER, resource, actions)

            file = place.folder / "user.toml"
            cluster.command("user", "create", USER, str(file))
            user = read_credentials(file)
            right = replace(place, cluster=cluster, credentials=user)
            wrong = replace(right, credentials=Credentials(USER, "not-the-secret"))
            right.make_topic()
            allow(f"Topic:{topic}", "Pub,Sub")
            allow(f"Group:{topic}*", "Sub")
            with wrong.consuming(client) as stranger:
                starts_or_ends(stranger)
                cannot_send(wrong, client)
                sent_and_pushed(client, client)(right)
                has_nothing(stranger, topic)
            closed = replace(right, topic=f"{topic}-closed")
            closed.make_topic()
            with closed.consuming(client) as early:
                starts_or_ends(early)
                cannot_send(closed, client)
                allow(f"Topic:{closed.topic}", "Pub")
                closed.send(client)
                time.sleep(UNTIL_DELIVERED_S)
                has_nothing(early, topic)
                allow(f"Topic:{closed.topic}", "Pub,Sub")
                began = time.monotonic()
                with closed.consuming(client) if early.crash() else early as reader:
                    reader.succeed(CONSUME_S)
                    none_twice(reader)
                seen = f"what a new rule allows came after {time.monotonic() - began:.1f} s"
            if client not in JAVA_VERSIONS:
                allow(f"Topic:{topic}-of-*", "Pub,Sub")
                for number, (what, feature) in enumerate(of_a_user(client).items()):
                    own = replace(right, topic=f"{topic}-of-{number}")
                    own.make_topic()
                    feature(own)
                    seen += f"; {what}"
                return seen
            allow(f"Topic:{topic}*", "Pub,Sub,Create,Update")
            allow("Cluster:*", "Get")
            signing = f"-Dcredentials={user.access_key}:{user.secret_key}"
            return f"{seen}; {in_java_of_its_own(right, client, signing)}"

    return Scenario(f"{TITLES[client]} signs", (client,), run)


def of_a_user(client: Client) -> dict[str, Callable[[Place], None]]:
    """What a client that is not Java's does besides, as a user."""
    again = sent_and_pushed(client, client, sending=LONG, reading=("--fail-first", "1"))
    features: dict[str, Callable[[Place], None]] = {
        "fails, and gets 5 KB again": again,
        "sends and gets 1 MB": sent_and_pushed(client, client, sending=MEGABYTE),
    }
    if client != "ali":
        ordered = sent_and_pushed(client, client, sending=("orderly",), reading=("--orderly",))
        features["sends and consumes in order"] = ordered
    if client == "go":
        features["transacts"] = transacted(client)
    return features


def starts_or_ends(reader: ClientScript) -> None:
    """Some clients start and try again and again; ali-ons ends at its first refusal."""
    try:
        reader.wait_until_ready()
    except Failed:
        if reader.crash() is None:
            raise


def cannot_send(place: Place, client: Client) -> None:
    """Every message of a sender fails, and it says so."""
    with place.sending(client, "--count", "2") as sender:
        code = sender.end(SEND_S)
        words = sender.words()
    failed = {line[: len("message 0")] for line in words}
    if not code or not {"message 0", "message 1"} <= failed:
        raise Failed(f"a sender was not refused: {words}")


def has_nothing(reader: ClientScript, topic: str) -> None:
    """No message has come."""
    came = [line for line in reader.words() if line.startswith(f"{topic}-")]
    if came:
        raise Failed(f"{len(came)} messages came that are refused, the first: {came[0]}")


def administers_users(place: Place) -> str:
    """Users and rules of two groups with access control, by the administrator."""
    with LocalCluster(place.folder, f"{UP} --access-control --nodes 1 --groups 2") as cluster:
        admin = read_credentials(cluster.access_file)
        home = place.folder / "home"
        (home / "conf").mkdir(parents=True)
        *words, program = place.toolchains["java5"].programs["mqadmin"]
        command = (*words, f"-Drocketmq.home.dir={home}", program, cluster.names)
        settings = home / "conf" / "tools.yml"
        settings.write_text(f"accessKey: {admin.access_key}\nsecretKey: {admin.secret_key}\n")
        process = JavaProcess(command, place.folder, "mqadmin")
        try:
            mqadmin = Mqadmin(process, place.topic, place.group)
            count = mqadmin.check_all(ON_USERS)
            settings.write_text(f"accessKey: {admin.access_key}\nsecretKey: not-the-secret\n")
            return f"{count + mqadmin.check_all(WITH_A_WRONG_SECRET)} commands"
        finally:
            process.kill()


def through_a_death(client: Client) -> Scenario:
    """Features of messages, at work while the leader's process is killed."""

    def run(place: Place) -> str:
        process = place.java.of(client, "scenarios")
        with ThreadPoolExecutor() as pool:
            futures = [
                pool.submit(process.ask, (method, f"{place.topic}-{number}"), JAVA_S)
                for number, method in enumerate(THROUGH_A_DEATH[client])
            ]
            time.sleep(UNTIL_DEATH_S)
            place.cluster.kill_leader()
            return "; ".join(future.result() for future in futures)

    name = f"{TITLES[client]} keeps orders, transactions, times through a leader's death"
    return Scenario(name, (client,), run, breaks_things=True)


def operated(
    client: Client, what: str, operation: Operation, *, breaks_things: bool = False
) -> Scenario:
    """A scenario of a version of `mqadmin`."""

    def run(place: Place) -> str:
        place.make_topic()
        return operation(place, client)

    name = f"mqadmin {JAVA_VERSIONS[client]} {what}"
    return Scenario(name, (client,), run, breaks_things, starts_processes=False)


def with_topic(scenario: Scenario) -> Scenario:
    """The scenario, with its topic made first."""

    def run(place: Place) -> str | None:
        place.make_topic()
        return scenario.run(place)

    return replace(scenario, run=run)


IN_JAVA = tuple(
    in_java(client, what, method)
    for client in JAVA_VERSIONS
    for what, method in java_scenarios(client).items()
)

OPERATED = tuple(
    operated(client, what, operation)
    for client in JAVA_VERSIONS
    for what, operation in OPERATIONS.items()
)

OF_PROGRAMS = (
    *with_every_mode("cpp"),
    Scenario("C++ sends 5 KB, and pulls", ("cpp",), sent_and_pulled("cpp", "sync", *LONG)),
    Scenario("C++ sends for later", ("cpp",), delayed("cpp", 5, "sync", "--delay-level", "2")),
    Scenario("ali-ons sends and consumes", ("ali",), sent_and_pushed("ali", "ali")),
    Scenario(
        "ali-ons sends 200, 32 at once",
        ("ali",),
        sent_and_pushed(
            "ali",
            "ali",
            sending=("--count", "200", "--inflight", "32"),
            reading=("--expect", "200"),
        ),
    ),
    Scenario(
        "ali-ons consumes two tags of three",
        ("ali",),
        sent_and_pushed("ali", "ali", sending=MIXED, reading=TWO_OF_THREE),
    ),
    Scenario(
        # Once only: this client forgets a message whose repeat fails again.
        "ali-ons fails, and gets 5 KB again",
        ("ali",),
        sent_and_pushed("ali", "ali", sending=LONG, reading=("--fail-first", "1")),
    ),
    Scenario("ali-ons broadcasts", ("ali",), broadcast("ali")),
    Scenario(
        "ali-ons sends for later", ("ali",), delayed("ali", 3, "sync", "--delay-seconds", "3")
    ),
    *with_every_mode("go", pulls=False),
    Scenario("Go sends for later", ("go",), delayed("go", 5, "sync", "--delay-level", "2")),
    Scenario(
        "Go consumes by a condition",
        ("go",),
        sent_and_pushed("go", "go", sending=MIXED, reading=THIRD),
    ),
    Scenario("Go transacts", ("go",), transacted("go")),
    *(
        Scenario(f"mqadmin counts what {TITLES[client]} did", (client, "java5"), counted(client))
        for client in TITLES
    ),
    compressed("cpp", "ali"),
    compressed("ali", "cpp"),
    compressed("java4", "java5"),
    compressed("java5", "java4"),
    compressed("cpp", "java4"),
    compressed("java5", "cpp"),
    compressed("go", "java5"),
    compressed("java5", "go"),
)

ALONE = (
    *(
        operated(client, "closes a broker for sends", closes_a_broker_for_sends, breaks_things=True)
        for client in JAVA_VERSIONS
    ),
    *map(through_a_death, JAVA_VERSIONS),
    *(
        with_topic(scenario)
        for scenario in (
            with_leader_killed("cpp", "cpp"),
            with_leader_killed("cpp", "ali"),
            with_leader_killed("java4", "java4"),
            with_leader_killed("java5", "java5"),
            with_leader_killed("go", "go"),
        )
    ),
)

# On groups of their own.
WITH_PROTECTION = (
    *map(over_tls, JAVA_VERSIONS),
    *map(signed, TITLES),
    Scenario("mqadmin 5.3.3 administers users", ("java5",), administers_users),
)

# The slow ones begin first: retries and transactions wait for half a minute and more.
SCENARIOS = (*map(with_topic, OF_PROGRAMS), *IN_JAVA, *OPERATED, *WITH_PROTECTION, *ALONE)
