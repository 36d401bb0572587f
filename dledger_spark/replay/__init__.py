"""Replays logs into Parquet files."""
