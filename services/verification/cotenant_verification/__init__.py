"""Chaos runs with their promises, and the benchmarks."""
