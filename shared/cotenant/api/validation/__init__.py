"""Validation of objects: one file per kind, and the field errors."""
