"""How many messages come and go: in all, by topic and by group."""
