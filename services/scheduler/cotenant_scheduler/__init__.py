"""Pods are placed on nodes, in batches over arrays."""
