"""Runtimes: how a pod's containers become something that runs. One interface, real processes or a simulation behind it."""
