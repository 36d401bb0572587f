"""Groups of brokers as processes of this machine, to try things and for tests."""
