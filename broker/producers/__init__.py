"""The present members of producer groups, as they say themselves."""
