"""Topics and groups that RocketMQ and its clients name in one way, and prefixes of such names."""

from typing import Final

# Before the name of a group: its retry topic, and the topic of its dead letters.
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

# RocketMQ's auto-create topic. A topic that does not exist yet gets queues like this one's, when a
# broker makes it at the first message.
TEMPLATE_TOPIC: Final = "TBW102"

# Where delayed messages of the levels wait, in queues 0 to 17.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"

# Where clients with tracing write the traces of their messages, unless told otherwise.
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

# Holds substitutes for copies that a broker could not store.
UNDELIVERED_TOPIC: Final = "rmq_sys_undelivered"

# Topics of RocketMQ's own tools.
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"

SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
