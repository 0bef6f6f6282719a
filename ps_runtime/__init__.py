"""psflow: Estimator-style parameter-server training on numpy and Dask."""
