"""How much a row looks like the background: learned when a model is wrapped, kept without pickle."""
