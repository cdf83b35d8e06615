"""Admission of the ConfigMap `slo-controller-config`: sections, ranges, values."""
