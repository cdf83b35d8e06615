"""The fold: nodes in columns, pods in shapes, and what both are read from."""
