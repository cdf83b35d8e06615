"""CPU: identity, suppression, sets, burst, core scheduling, eviction."""
