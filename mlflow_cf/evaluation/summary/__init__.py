"""The fewest common changes that turn the most rows, and a proof that no others turn more."""
