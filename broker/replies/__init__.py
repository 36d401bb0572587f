"""Request and reply: a consumer's reply goes to the producer that asked."""
