"""One address for a group: members that do not lead pass clients on to the leader."""
