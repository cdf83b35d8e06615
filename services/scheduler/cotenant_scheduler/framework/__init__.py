"""The scheduling framework: runs the plugins over all nodes and keeps their results."""
