"""The engine of a deciding service, without I/O: the core contract, the cycle, commits, replay."""
