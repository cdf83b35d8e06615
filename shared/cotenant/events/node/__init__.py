"""What is measured on a node, computed for it and done on it: one file a family of payloads."""
