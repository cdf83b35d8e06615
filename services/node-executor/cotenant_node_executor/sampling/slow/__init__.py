"""Readings with longer periods: the machine's facts, cold memory, cycles and instructions, caches, NUMA nodes.

``readings`` holds the results, ``collectors`` what runs when, ``worker`` the thread that it runs in. ``kidled``, ``page_idle``
and ``damon`` find cold memory, each on the kernels that have it; ``cold_memory`` chooses; ``page_owners`` finds pages' owners.
"""
