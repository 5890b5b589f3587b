"""Reads published cases and reconstructs the scenarios that their runs used."""
