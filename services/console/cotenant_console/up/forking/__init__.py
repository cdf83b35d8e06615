"""Starting Python processes as forks of one that has imported what they share."""
