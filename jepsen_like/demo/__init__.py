"""The whole project in one run: a group, traffic, a killed leader, and Spark tables of its log."""
