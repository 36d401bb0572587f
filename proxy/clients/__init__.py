"""The clients that are connected: their settings, their heartbeats, and what they are asked."""
