"""The model_fns and heads of canned Estimators."""
