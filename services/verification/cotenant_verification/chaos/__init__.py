"""`cotenant simulate --chaos`: the whole control plane under faults, from one seed, with its promises checked."""
