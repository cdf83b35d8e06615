"""Benchmarks of the whole stack whose load are users of the HTTP API: pods that come and go, pods that are deleted."""
