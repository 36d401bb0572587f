"""Where clients send and receive: routes of topics, and assignments of queues."""
