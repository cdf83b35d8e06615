"""The independent check of a benchmark's decisions."""
