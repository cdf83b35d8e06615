"""Targets outside of control groups: sysctls, threads, resctrl groups, traffic classes."""
