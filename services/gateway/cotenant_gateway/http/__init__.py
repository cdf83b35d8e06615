"""The HTTP side of the gateway: what `kubectl` expects of an API server, and cotenant's own endpoints."""
