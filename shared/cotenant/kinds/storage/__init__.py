"""Kubernetes' storage kinds. Volumes are made and bound outside; the scheduler reads what these objects say."""
