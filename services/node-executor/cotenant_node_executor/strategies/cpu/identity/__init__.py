"""Latency-sensitive groups go first, batch groups give way."""
