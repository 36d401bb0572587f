"""What consumers do: receive, acknowledge, postpone, give up."""
