"""What requests were answered, kept as MLflow traces, and computed again from them."""
