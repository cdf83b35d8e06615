"""Who asks, and whether they may: over HTTP, and for evictions over NATS."""
