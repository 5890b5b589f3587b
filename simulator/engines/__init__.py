"""Serving engines: one preset file per release, read into a `Preset`."""
