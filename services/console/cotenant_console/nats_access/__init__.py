"""Who may do what on NATS: roles, keys, credentials, and the servers' part of it."""
