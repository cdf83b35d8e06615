"""Strategies: each looks at the situation of the node and returns desired values and orders. None writes."""
