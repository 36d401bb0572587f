"""`python -m proxy`: `command_entry` loads the command, and reports a failure to load."""

import command_entry

if __name__ == "__main__":
    command_entry.proxy()
