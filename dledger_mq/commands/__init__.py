"""The `dledger-mq` command."""
