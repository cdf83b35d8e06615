"""Usage of a node and its groups: counters are read once a cycle and converted to rates.

``proc`` and ``usage`` hold the pure rules, ``snapshot`` the result, ``counters`` the paths and reads of a group's files;
``sampler`` reads the whole node.
"""
