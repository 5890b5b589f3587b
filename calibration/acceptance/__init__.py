"""Acceptance of real models: measured, summarised, fitted (docs/measured-acceptance.md)."""
