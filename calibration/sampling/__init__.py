"""Exact speculative sampling: one rejection rule, one decode loop, chains and trees (docs/sampling.md)."""
