"""gRPC clients of users, where brokers have access control."""

from remoting.wire.signature import Credentials
from tests.clients.client_script import Failed
from tests.clients.driver import Driver, Refused
from tests.clients.grpc_stage import NOTHING_S, SOON_S, Stage, check_nothing, check_same

# Some clients start only when they are permitted to, and try for ever.
START_S = 15


def is_refused_a_wrong_secret(stage: Stage) -> str:
    """A client whose secret is wrong sends nothing; one with the right one does."""
    user = stage.place.proxy.reach.user
    if user is None:
        raise Failed("there is no access control")
    stage.make_topic()
    with stage.driver(user=Credentials(user.access_key, "not-the-secret")) as driver:
        said = cannot_send(stage, driver, stage.topic)
    goes_on(stage)
    return said


def is_refused_a_topic_without_a_rule(stage: Stage) -> str:
    """The user's rules are for other topics; there it goes on."""
    closed = f"closed-{stage.topic}"
    stage.make_topic()
    stage.make_topic(name=closed)
    with stage.driver() as driver:
        said = cannot_send(stage, driver, closed)
    goes_on(stage)
    return said


def cannot_send(stage: Stage, driver: Driver, topic: str) -> str:
    """Check that a producer does not start, or its message is refused; in whose words."""
    try:
        driver.begin_producer(topic).result(START_S)
    except (Refused, TimeoutError) as refused:
        return f"it does not start: {refused!s:.60}"
    [receipt] = driver.receipts([{**stage.message(0), "topic": topic}])
    if not receipt.error:
        raise Failed(f"a message to {topic} was taken")
    return f"{receipt.error:.60}"


def goes_on(stage: Stage) -> None:
    """Check that the topic has nothing but what is sent now."""
    with stage.driver() as driver:
        driver.producer(stage.topic)
        driver.consumer("simple", stage.group, stage.topic, wait_s=NOTHING_S)
        sent = stage.messages(3)
        driver.send(sent)
        check_same(sent, driver.collect(len(sent), SOON_S))
        check_nothing(driver)
