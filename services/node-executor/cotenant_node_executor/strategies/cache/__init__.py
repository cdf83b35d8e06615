"""Shared cache and memory bandwidth by resctrl."""
