"""Load of nodes: what is measured, what is estimated, what load-aware scheduling may be told."""
