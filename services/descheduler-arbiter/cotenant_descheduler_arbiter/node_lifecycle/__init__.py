"""Readiness of nodes: conditions, taints, and the evictions that follow from them."""
