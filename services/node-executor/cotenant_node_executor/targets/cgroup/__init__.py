"""Control groups: their files, how they are read and written, and the kernel's capabilities.

Layers, lowest first: ``paths`` are pure text rules; ``files`` is the registry of knobs; ``hierarchy`` finds the mounts; ``v1``,
``v2`` and ``sandbox`` drive a tree; ``driver`` selects one; ``knobs`` probes it; ``levels`` orders a cycle's writes and
``writer`` executes them.
"""
