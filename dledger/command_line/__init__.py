"""The parts of the commands of all packages: options, endings, rows, progress, signals."""
