"""Known mistakes: the catalogue, and how one is planted."""
