"""Work on the folders of stopped members: backups, and recovery without a quorum."""
