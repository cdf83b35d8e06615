"""What services report of their own latency."""
