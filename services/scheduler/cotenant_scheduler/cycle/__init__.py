"""One scheduling cycle: the queue, pods that are assumed until they are stored, and what becomes of those that fit nowhere."""
