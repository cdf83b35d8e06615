"""LowNodeLoad: selects pods to move by the measured usage of a pool's nodes."""
