"""What services say of their own latency."""
