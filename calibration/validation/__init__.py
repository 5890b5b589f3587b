"""Published measurements, simulated and compared."""
