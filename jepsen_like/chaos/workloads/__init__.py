"""What clients do in a run, each workload a service like those that users write."""
