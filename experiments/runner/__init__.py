"""Who does the work: one driver over processes or a Dask cluster."""
