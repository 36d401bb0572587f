"""A client that means harm, beside the good ones of a run."""
