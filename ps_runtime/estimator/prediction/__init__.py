"""`Estimator.predict`: in this process, or on the workers of a Dask cluster."""
