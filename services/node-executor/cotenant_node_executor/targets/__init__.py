"""Targets of strategies: control groups and other objects of the kernel, how they are read and written.

``parse``, ``convert``, ``psi`` and ``cpulist`` are pure text rules; ``address`` names places and attributes; ``interface``
defines what the rest of the service uses. ``cgroup`` has the control groups, ``other`` everything else.
"""
