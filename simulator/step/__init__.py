"""One engine step, written once: `schedule` it, `price` its stages, `update` with its results (docs/step.md).

Plain functions over the record arrays of `state.py`, compiled by numba. Every run calls nothing else.
"""
