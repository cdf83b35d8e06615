"""ClusterColocationProfiles at admission: which ones a pod matches, and what they change."""
