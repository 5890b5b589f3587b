"""One operator family a file: a function that yields the points of a network on a grid of shapes."""
