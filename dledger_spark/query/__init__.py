"""What a query of the data source reads of logs, and its division among tasks."""
