"""What each request costs at its dearest: with the state at its limits, and the dearest input."""
