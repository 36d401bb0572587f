"""Messages that a group has given up: delivered to it once more, when an operator says so."""
