"""The client of a group: finds the leader, sends it requests, follows its log."""
