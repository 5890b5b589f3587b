"""The scenario file: schema, loading with places, `--set`, flags, and writing it back.

`load_scenario(path, overrides)` reads and checks a file; everything that is wrong with it is reported at once,
each with its line and column. What each key means is in the `description` of its field.
"""
