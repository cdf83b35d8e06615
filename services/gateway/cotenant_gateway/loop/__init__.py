"""The gateway without I/O: how it carries out requests, and its duties for the log. The process and the simulator both run
it."""
