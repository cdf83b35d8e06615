"""Computes batch and mid resources of nodes, and renders the node SLO."""
