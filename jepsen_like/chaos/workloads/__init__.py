"""The workloads of runs, each a service like those that users write."""
