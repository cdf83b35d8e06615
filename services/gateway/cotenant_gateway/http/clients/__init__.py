"""Connections of clients: TLS, bounds, what they hold open, what is counted of them."""
