"""The verbs on resources, as an API server answers them."""
