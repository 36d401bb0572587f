"""The connected members of producer groups."""
