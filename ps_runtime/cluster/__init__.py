"""The control plane: roles as pinned tasks on a Dask cluster. The one room of the runtime that knows Dask."""
