"""Credentials of the gateway and its clients: certificates, tokens, keys."""
