"""Elastic quota trees: runtime quota by fair sharing among siblings."""
