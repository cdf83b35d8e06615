"""What the promises are checked against: views of the log and of the nodes that share nothing with the services."""
