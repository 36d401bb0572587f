"""Users and what each of them may do."""
