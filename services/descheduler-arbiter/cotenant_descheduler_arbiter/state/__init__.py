"""The fold: what the log says of nodes, pods and jobs, and the views that the rules read."""
