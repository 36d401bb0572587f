"""The name server: tells clients where topics live, from what brokers last told it.

It keeps nothing on disk and knows no other name server. Brokers register with all of them every 30
seconds and on every change; clients ask any.
"""
