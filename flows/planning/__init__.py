"""Plans a training from its parameters: new job, restart or fork; Estimator; free model_dir."""
