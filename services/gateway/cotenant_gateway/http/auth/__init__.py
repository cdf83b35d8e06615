"""Access control: over HTTP, and for evictions over NATS."""
