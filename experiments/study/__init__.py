"""What is varied: the study file, its axes and conditions, its grid of cells."""
