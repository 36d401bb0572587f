"""The name server: tells clients which brokers serve a topic, from the brokers' registrations.

It keeps no routes on disk and knows no other name server. Brokers register with all name servers
every 30 seconds and on every change; clients ask any.
"""
