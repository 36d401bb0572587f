"""Moving a consumer group back, or forward, in its topics."""
