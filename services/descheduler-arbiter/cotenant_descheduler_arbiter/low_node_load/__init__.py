"""LowNodeLoad: from the measured usage of a pool's nodes to the pods that move."""
