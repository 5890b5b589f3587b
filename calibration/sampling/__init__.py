"""Exact speculative sampling: one rejection rule, one decode loop, chains and trees (docs/sampling.md)."""

from calibration.sampling.decode import Decoded, Round, speculative_decode

__all__ = ["Decoded", "Round", "speculative_decode"]
