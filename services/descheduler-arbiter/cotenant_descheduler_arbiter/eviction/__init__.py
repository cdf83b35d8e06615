"""What holds for every eviction, whoever asks for it: who may be evicted, where it would fit, and how often."""
