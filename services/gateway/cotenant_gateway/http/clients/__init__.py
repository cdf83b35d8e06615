"""Connections of clients: TLS, bounds, open streams, metrics."""
