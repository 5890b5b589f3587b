"""The field's rules of thumb, examined: `python -m calibration.acceptance.claims` writes docs/claims.md."""
