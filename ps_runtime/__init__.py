"""Contains the engine: the parameter server, its clients, roles, data and checkpoints, without Prefect and MLflow."""
