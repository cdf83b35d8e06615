"""The real-time class of latency-sensitive pods, and the process that guards it."""
