"""What a node and its groups use: counters read once a cycle and turned into rates.

``proc`` and ``usage`` are the pure rules; ``snapshot`` is the result; ``counters`` keeps the open files; ``sampler``
reads.
"""
