"""Peak prediction: decaying histograms of usage by node, tier and pod, and the reclaimable part of prod pods' requests."""
