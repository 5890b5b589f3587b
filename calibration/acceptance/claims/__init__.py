"""Tests the field's rules of thumb: `python -m calibration.acceptance.claims` writes docs/claims.md."""
