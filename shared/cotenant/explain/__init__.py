"""Why is it so: chains of causes, and events in words."""
