"""Acceptance as real models give it: measured, summed up, fitted (docs/measured-acceptance.md)."""
