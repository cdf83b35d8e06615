"""Promises about the log: causes, durability, the fold and its recomputation, memory."""
