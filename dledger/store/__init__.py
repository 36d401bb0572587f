"""The log on disk, byte-compatible with Java DLedger 0.4, and its memory twin.

`log_store.LogStore` is the contract; `open_store.open_store` opens the store over files.
`scan.scan_folder` reads a folder at rest.
The format and the rules of recovery are in docs/storage-format.md.
"""
