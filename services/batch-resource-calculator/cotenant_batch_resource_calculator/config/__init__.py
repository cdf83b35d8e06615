"""The ConfigMap koordinator-system/slo-controller-config: decoding, defaults, selection per node."""
