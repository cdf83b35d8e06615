"""Strategies: each looks at one situation of the node and returns wishes for values in kernel files. None writes."""
