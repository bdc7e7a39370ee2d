"""Decision trees, forests and boosting, opened."""
