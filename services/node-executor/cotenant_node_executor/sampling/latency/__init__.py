"""Latency that services report themselves."""
