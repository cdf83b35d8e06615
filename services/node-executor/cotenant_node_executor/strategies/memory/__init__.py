"""Memory: protection by class, eviction, and the steps before it."""
