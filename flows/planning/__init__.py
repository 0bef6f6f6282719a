"""From the parameters of a training to its plan: a new job, the same one again or a fork; its Estimator; its turn."""
