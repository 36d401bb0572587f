"""The settings that operators change while brokers run."""
