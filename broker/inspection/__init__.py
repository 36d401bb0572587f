"""What operators ask about consumer groups: who reads what, how far, and what members say."""
