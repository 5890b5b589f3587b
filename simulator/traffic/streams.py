"""Named streams of random numbers for the traffic: a seed gives the same requests, whatever else is drawn."""

from __future__ import annotations

import hashlib

import numpy as np

_MASK_64 = (1 << 64) - 1


def stream(seed: int, name: str) -> np.random.Generator:
    """A generator that belongs to (seed, name) alone: NumPy's Philox with those two as its 128-bit key.

    Streams with different names are independent, so drawing more arrivals never shifts the lengths,
    and every variant of a scenario meets the same requests. Arrays drawn from it have the prefix property:
    the first 10 of 20 are those of 10.
    """
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    key = np.array([seed & _MASK_64, int.from_bytes(digest, "little")], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
