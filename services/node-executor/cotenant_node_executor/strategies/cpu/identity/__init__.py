"""CPU identity: latency-sensitive groups take precedence over batch groups."""
