"""The log on disk, byte-compatible with Java DLedger 0.4, and its memory twin.

`log_store.LogStore` is the contract; `segment_store.open_store` opens the one over files,
`memory_store.MemoryStore` is the one that forgets. `scan.scan_folder` reads a folder at rest.
The format and the rules of recovery are in docs/storage-format.md.
"""
