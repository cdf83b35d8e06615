"""Promises about evictions: limits, migration jobs, the evictors of nodes, preemption."""
