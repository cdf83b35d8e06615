"""`cotenant up`: every service as a process of its own under one supervisor, on this machine."""
