"""Request and reply: a consumer's answer goes to the producer that has asked."""
