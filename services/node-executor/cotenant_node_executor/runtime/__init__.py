"""Runtimes run a pod's containers. One interface with two implementations: host processes and a simulation."""
