"""Benchmarks of the scheduler: a private server, real processes, a result that an independent check verifies."""
