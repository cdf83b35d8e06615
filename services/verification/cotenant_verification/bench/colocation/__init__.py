"""`cotenant bench colocation`: how much neighbours slow down a service, on this machine's own kernel."""
