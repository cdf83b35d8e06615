"""Pressure stall information: triggers of the kernel, and readings of its files."""
