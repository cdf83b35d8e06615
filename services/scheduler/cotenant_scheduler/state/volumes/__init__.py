"""What the log says of claims, volumes and CSI drivers, and which pods use which claims where."""
