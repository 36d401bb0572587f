"""Traces of messages: clients write them, administrators read them."""
