"""Node slack becomes batch capacity; the node SLO is rendered."""
