"""Settings that operators change while brokers run."""
