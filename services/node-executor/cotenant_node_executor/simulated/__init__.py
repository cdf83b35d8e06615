"""Simulated nodes: the same core on a simulated machine, without I/O and under a virtual clock."""
