"""The presets' free host times, fitted on stated sources."""
