"""Exact speculative sampling: the rejection rule and the decode loop, for chains and trees
(docs/sampling.md).
"""

from calibration.sampling.decode import Decoded, Round, speculative_decode

__all__ = ["Decoded", "Round", "speculative_decode"]
