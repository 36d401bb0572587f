"""The way to the brokers: clients, their routes and requests, and calls that follow the leader."""
