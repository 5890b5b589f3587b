"""One engine step, written once: `compose` a plan, `price` its stages, `apply` its results (docs/step.md).

Plain functions over the record arrays of `state.py`, compiled by numba; both drivers call nothing else.
"""
