"""Load of nodes: measurements, estimates, configuration of load-aware scheduling."""
