"""Messages that consumers could not consume: delivered again, or given up."""
