"""Whether the members of a group pull or pop, and from which queues, as brokers tell them."""
