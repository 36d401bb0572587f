"""The links between the processes of a run: namespaces, and a switch that breaks packets."""
