"""Load of nodes: what is measured, what is estimated, how load-aware scheduling is configured."""
