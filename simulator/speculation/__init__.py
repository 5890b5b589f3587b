"""Speculation methods, one file each: what is drafted and verified.

A new method is a new file here that calls `register`.
"""

from simulator.registry import Registry
from simulator.speculation.base import Method

__all__ = ["Method", "method", "methods", "register", "registered"]

_METHODS: Registry[Method] = Registry("method", "method", __name__, __path__)

register, registered, methods, method = _METHODS.register, _METHODS.registered, _METHODS.all, _METHODS.find
