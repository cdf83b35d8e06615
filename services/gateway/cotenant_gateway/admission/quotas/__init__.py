"""Elastic quotas at admission: their tree, the quota of a pod, and the nodes of a tree."""
