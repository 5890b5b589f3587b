"""Maps: where speculation pays, by how much, with which draft length, and what the wrong one costs."""
