"""Strategies: each maps the situation of the node to desired values and orders. None writes."""
