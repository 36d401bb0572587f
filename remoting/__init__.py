"""RocketMQ's remoting protocol: frames, commands, message records, and trio connections.

The codecs are pure and import nothing but the standard library; only `connection`, `server` and
`client` need trio. Import the modules by name; this package re-exports nothing, so that a reader
of a log file does not load an event loop.
"""
