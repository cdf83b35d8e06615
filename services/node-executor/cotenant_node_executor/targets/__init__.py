"""The node's control groups: what files there are, how they are read and written, and what this kernel can do.

Storeys, lowest first: ``parse``, ``convert``, ``psi``, ``cpulist`` and ``paths`` are pure text rules; ``files`` is the
registry of knobs; ``interface`` names what the rest of the service works with; ``hierarchy`` finds the mounts; ``v1``,
``v2`` and ``sandbox`` drive a tree; ``driver`` chooses one; ``knobs`` probes it; ``levels`` orders a cycle's writes and
``writer`` carries them out.
"""
