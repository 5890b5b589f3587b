"""Which uncertain inputs decide the answer, one at a time and all together."""
