"""Operators: how long one kind of kernel takes on one GPU, as a function of its shape.

Each file holds one operator family: a small frozen record made of arrays from a `Profile`,
with functions that return microseconds. The builder of profiles fits the same records, so that
what is tested is what is simulated.
"""
