"""Runs the roles as pinned tasks on a Dask cluster: the control plane. Only this package of the runtime knows Dask."""
