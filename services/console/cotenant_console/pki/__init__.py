"""What the gateway and its clients know each other by: certificates, tokens, keys."""
