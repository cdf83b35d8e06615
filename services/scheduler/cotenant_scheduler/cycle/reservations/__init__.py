"""Placing pods in reservations, and what becomes of reservations."""
