"""From requests and the read model to plans: pure, no I/O and no clock."""
