"""The folder of an explained model on disk, and MLflow's side of it."""
