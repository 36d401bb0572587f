"""What a request about a stored message needs: an action on the message's topic.

Log positions can be guessed, so it is the message that counts, not what the client says about it.
"""

from collections.abc import Sequence

from broker.messages.record_facts import read_record_facts
from broker.serving.needs import Action, Need
from broker.topics.needs import topic_need


def message_needs(record: bytes | None, *actions: Action) -> Sequence[Need]:
    """Return the need for the topic of a record; none if there is no message, which is refused."""
    facts = None if record is None else read_record_facts(record)
    return () if facts is None else (topic_need(facts.topic, *actions),)
