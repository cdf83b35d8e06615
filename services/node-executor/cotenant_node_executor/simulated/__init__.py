"""Simulated nodes: the same core on an imitated machine, without I/O and under a virtual clock."""
