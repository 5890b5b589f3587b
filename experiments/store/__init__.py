"""Where results go: one SQLite file per study."""
