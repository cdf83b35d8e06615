"""Peak prediction: decaying histograms of usage by node, tier and pod, and what prod pods will not need of their requests."""
