"""Messages between their two forms: as clients of RocketMQ 5 have them, and as brokers do."""
