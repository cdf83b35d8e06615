"""Chaos runs and the promises that they check, simulation runs, and benchmarks."""
