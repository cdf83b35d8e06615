"""The demonstration: a latency-sensitive HTTP service, its load, and batch jobs, all of them real processes."""
