"""The gateway without I/O: what it does for requests and what it owes the log. The process and the simulator both run it."""
