"""The parts of a `config.json` reader: checked fields, weight formats,
token mixers, MLPs, and how they form layers."""
