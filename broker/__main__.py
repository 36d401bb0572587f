"""`python -m broker`: `command_entry` loads the command and reports failures to load it."""

import sys

import command_entry

if __name__ == "__main__":
    sys.exit(command_entry.broker())
