"""In which order jobs are tried, and what the first of them is kept."""
