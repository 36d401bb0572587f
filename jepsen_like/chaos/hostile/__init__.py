"""A client that attacks members, beside the good clients of a run."""
