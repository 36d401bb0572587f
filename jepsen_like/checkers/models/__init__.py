"""What objects do when one operation happens after another."""
