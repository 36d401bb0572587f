"""RocketMQ's remoting protocol: frames, commands, message records, bodies, and trio connections.

`wire` has frames and commands, `message` the records of messages, `bodies` the JSON bodies; these
are pure and import only the standard library. Only `net`, the connections, needs trio. Each part
may import those named before it. Import the modules by name; this package re-exports nothing, so
that a reader of a log file does not load an event loop.
"""
