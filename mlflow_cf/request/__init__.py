"""From the options of a request to its replies."""
