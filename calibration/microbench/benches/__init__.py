"""One operator family per file: a function that yields the points of a network on a grid of shapes."""
