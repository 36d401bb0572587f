"""What the commands of all packages are made of: options, endings, rows, progress, signals."""
