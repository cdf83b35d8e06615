"""Eviction for CPU: best-effort work that gets too little of what it requested, and nodes that use or promise too much."""
