"""Access control on NATS: roles, keys, credentials, and the servers' part of it."""
