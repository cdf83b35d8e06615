"""Benchmarks of the scheduler: private server, real processes, a result that is checked by other means."""
