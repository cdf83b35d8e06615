"""Measurements of a node, decisions for it and actions on it: one file per family of payloads."""
