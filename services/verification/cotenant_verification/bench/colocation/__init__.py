"""`cotenant bench colocation`: what a service feels of its neighbours, on this machine's own kernel."""
