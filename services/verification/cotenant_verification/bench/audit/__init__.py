"""The independent check of what a benchmark decided."""
