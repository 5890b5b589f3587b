"""Models and drafters: what a `config.json` says, as sizes; the catalogue of those known by name."""
