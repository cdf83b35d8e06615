"""Rules for every eviction: which pods may be evicted, where they would fit, and how often."""
