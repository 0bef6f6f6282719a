"""The engine: the parameter server, its clients, roles, data and checkpoints. It knows neither Prefect nor MLflow."""
