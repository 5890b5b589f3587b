"""One variant compiled and run: what it runs on, its settings, its replications."""
