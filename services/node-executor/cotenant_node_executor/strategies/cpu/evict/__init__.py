"""Eviction for CPU: best-effort work that gets too little of its requests, nodes with too much usage or requests."""
