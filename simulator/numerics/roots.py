"""One root of a continuous function in a bracket, to the last bits of a float, in few evaluations."""

from __future__ import annotations

from collections.abc import Callable

_MOST_EVALUATIONS = 200
_EPS = 2.0**-53


def bracketed_root(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float = 0.0
) -> float:
    """Return x in [low, high] where `function` changes sign, within `tolerance` (0: neighbouring floats).

    Chandrupatla's method (Advances in Engineering Software 28, 1997):
    inverse quadratic interpolation where that is safe, else bisection. Leaves out noise:
    for simulated functions see the break-even search.

    Raises:
        ValueError: `function` has the same sign at both ends.
    """
    a, b = low, high
    fa, fb = function(a), function(b)
    if fa == 0.0:
        return a
    if fb == 0.0:
        return b
    if (fa > 0.0) == (fb > 0.0):
        raise ValueError(f"no sign change: f({low}) = {fa}, f({high}) = {fb}")
    c, fc, share = a, fa, 0.5
    for _ in range(_MOST_EVALUATIONS):
        x = a + share * (b - a)
        fx = function(x)
        if (fx > 0.0) == (fa > 0.0):
            c, fc = a, fa
        else:
            c, b, fc, fb = b, a, fb, fa
        a, fa = x, fx
        best = a if abs(fa) < abs(fb) else b
        smallest_share = (tolerance + 2.0 * _EPS * abs(best)) / abs(b - a) if b != a else 1.0
        if smallest_share > 0.5 or fa == 0.0:
            return best
        xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
        if phi * phi < xi and (1.0 - phi) * (1.0 - phi) < 1.0 - xi:
            share = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        else:
            share = 0.5
        share = min(max(share, smallest_share), 1.0 - smallest_share)
    return best
