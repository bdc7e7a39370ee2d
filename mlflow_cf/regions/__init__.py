"""Boxes around counterfactuals in which every admissible row is proved to be one, too."""
