"""Placing pods in reservations, and the lifecycle of reservations."""
