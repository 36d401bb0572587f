"""The product's own core and store in one process, with virtual time, network and disks."""
