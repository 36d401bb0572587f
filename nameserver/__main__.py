"""`python -m nameserver`: `command_entry` loads the command, and says what fails then."""

import command_entry

if __name__ == "__main__":
    command_entry.nameserver()
