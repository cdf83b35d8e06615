"""Explanations: chains of causes, and events in words."""
