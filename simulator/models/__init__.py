"""Models and drafters: the sizes that a `config.json` describes; the catalogue of those known by name."""
