"""The basis of the promises' checks: views of the log and of the nodes that share nothing with the services."""
