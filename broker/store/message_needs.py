"""What a request about a stored message needs: an action on the message's topic.

Log positions can be guessed, so it is the message that counts, not what the client says about it.
Where no message is, a client needs the right to all topics: any other is refused as if there were
one that it may not read.
"""

from collections.abc import Sequence

from broker.messages.record_facts import read_record_facts
from broker.serving.needs import Action, Kind, Need
from broker.topics.needs import topic_need


def message_needs(record: bytes | None, *actions: Action) -> Sequence[Need]:
    """Return the need for the topic of a record.

    `record`: None if there is no message.
    """
    facts = None if record is None else read_record_facts(record)
    if facts is None:
        # No topic has this name, so only rules for all topics fit.
        return (Need(frozenset(actions), Kind.TOPIC, "", is_of_message=True),)
    return (topic_need(facts.topic, *actions)._replace(is_of_message=True),)
