"""Common random numbers: one uniform a token, the same for every draft length, batch, driver and process.

A 64-bit counter-based hash (the finaliser of SplitMix64; Steele, Lea and Flood, OOPSLA 2014) of (seed,
request, stream, output position) gives one uniform. Nothing is stored and nothing is consumed: asking twice
gives the same answer. So a request meets the same random numbers however many drafts are made, and two
simulations that share a seed are paired token by token.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.numerics.compiled import compiled

STREAM_SURVIVAL = 0
"""Whether the draft of this output token survives verification."""
STREAM_MATCH = 1
"""Whether a prompt lookup finds a match for a round that starts at this position."""
STREAM_DRIFT = 2
"""Innovation of the drift of acceptance along the output."""
STREAM_REQUEST = 3
"""Effects that hold for all of a request (position 0)."""
STREAM_LENGTH = 4
"""How many tokens the match of a prompt lookup has, for a round that starts at this position."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ODD = np.uint64(0xD1342543DE82EF95)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_TO_UNIT = 1.0 / 9007199254740992.0


@compiled(inline=True)
def mix64(value: np.uint64) -> np.uint64:
    """Scramble 64 bits: the finaliser of SplitMix64."""
    value = (value ^ (value >> _S30)) * _MIX_1
    value = (value ^ (value >> _S27)) * _MIX_2
    return value ^ (value >> _S31)


@compiled(inline=True)
def stream_key(seed: int, request: int, stream: int) -> np.uint64:
    """Return the key under which the tokens of one request draw from one stream. For compiled callers."""
    first = mix64(np.uint64(seed) * _ODD + _GOLDEN)
    return mix64(first ^ (np.uint64(request) * _GOLDEN + np.uint64(stream) * _MIX_2 + np.uint64(1)))


@compiled(inline=True)
def random_bits(key: np.uint64, position: int) -> np.int64:
    """Return the 53 random bits of the token at 1-based output `position` under `key`."""
    return np.int64(mix64(key + np.uint64(position) * _GOLDEN) >> _S11)


@compiled(inline=True)
def uniform(key: np.uint64, position: int) -> float:
    """Return the uniform in [0, 1) of the token at 1-based output `position`. For compiled callers."""
    return random_bits(key, position) * _TO_UNIT


@compiled(entry=True)
def stream_keys(seed: int, requests: int, stream: int) -> NDArray[np.uint64]:
    """Return the keys (requests,) of requests 0, 1, … of one stream."""
    keys = np.empty(requests, np.uint64)
    for request in range(requests):
        keys[request] = stream_key(seed, request, stream)
    return keys


@compiled(entry=True)
def draw(seed: int, request: int, stream: int, position: int) -> float:
    """Return the uniform in [0, 1) of one output position of a request in a stream. For Python callers."""
    return uniform(stream_key(seed, request, stream), position)


@compiled(entry=True)
def request_draws(seed: int, requests: int, stream: int) -> NDArray[np.float64]:
    """Return the uniforms (requests,) at position 0 of one stream; adding requests changes no earlier one."""
    draws = np.empty(requests, np.float64)
    for request in range(requests):
        draws[request] = uniform(stream_key(seed, request, stream), 0)
    return draws
