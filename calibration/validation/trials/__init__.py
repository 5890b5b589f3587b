"""Published cases and what of them is simulated."""
