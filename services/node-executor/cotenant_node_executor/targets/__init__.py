"""The node's control groups: their files, how they are read and written, and the kernel's capabilities.

Layers, lowest first: ``parse``, ``convert``, ``psi``, ``cpulist`` and ``paths`` are pure text rules; ``files`` is the
registry of knobs; ``interface`` defines what the rest of the service uses; ``hierarchy`` finds the mounts; ``v1``, ``v2``
and ``sandbox`` drive a tree; ``driver`` selects one; ``knobs`` probes it; ``levels`` orders a cycle's writes and ``writer``
executes them.
"""
