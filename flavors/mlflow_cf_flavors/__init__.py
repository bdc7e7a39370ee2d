"""One module per MLflow flavor; each opens a logged model for mlflow_cf."""
