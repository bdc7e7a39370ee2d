"""The baselines of the papers: one file and one class per method."""
