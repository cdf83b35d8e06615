"""Gangs whose pods shall be near to one another in the network."""
