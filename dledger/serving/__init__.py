"""What a process takes in: peers and clients on one listener, each passed to its group."""
