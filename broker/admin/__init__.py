"""What administrators ask: figures, settings, statistics, single messages."""
