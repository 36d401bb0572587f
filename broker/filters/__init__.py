"""Filters: which messages of a topic a consumer group wants, by an SQL92 condition."""
