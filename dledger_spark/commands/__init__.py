"""The command `dledger-spark`, and what its commands share."""
