"""Windows of a node: samples by time, and the percentiles of many nodes at once."""
