"""The basis of the promises' checks: views of the log and of the nodes, independent of the services."""
