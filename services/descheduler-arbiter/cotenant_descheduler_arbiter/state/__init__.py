"""The fold: the state of nodes, pods and jobs from the log, and the views for the rules."""
