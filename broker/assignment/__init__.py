"""Whether the members of a group pull or pop, and from which queues, if the broker assigns them."""
