"""One address for a group: followers relay clients to the leader."""
