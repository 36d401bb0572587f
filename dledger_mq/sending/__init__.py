"""Messages on their way to a broker: composed, gathered, compressed, sent again."""
