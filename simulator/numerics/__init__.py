"""Compiled code, random numbers and root finding: what the model is computed with."""
