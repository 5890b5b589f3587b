"""Timings of single operators on the user's own device: benches, one timing core, one plan of points."""
