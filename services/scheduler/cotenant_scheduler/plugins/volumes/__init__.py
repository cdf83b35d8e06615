"""Filters about volumes: where the volumes of a pod can be, how many a node takes, who else uses a claim."""
