"""The kinds that the API serves: one file a kind, and the registry of all of them."""
