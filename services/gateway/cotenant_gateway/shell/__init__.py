"""Requests to plans, plans to the log, and the level-triggered duties."""
