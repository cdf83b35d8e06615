"""One scheduling cycle: the queue, assumed pods, preemption, and the waiting events of pods that fit nowhere."""
