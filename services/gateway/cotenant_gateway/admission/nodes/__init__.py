"""Admission of nodes, and of what is made of a node's facts."""
