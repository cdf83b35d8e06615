"""Benchmarks of the whole stack with load by users of the HTTP API: pods that come and go, pods that are deleted."""
