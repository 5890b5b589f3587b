"""The simulator: SimPy processes around the engine step, and the compiled loop they use."""
