"""How a run shows in Prefect: labels of a flow run, task runs of what runs on the cluster."""
