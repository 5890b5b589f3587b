"""Microbenchmarks of single operators on the user's device: benches, a timing core, a plan of points."""
