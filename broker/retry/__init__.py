"""Messages that consumers could not consume: delivered again, or made dead letters."""
