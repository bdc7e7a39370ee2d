"""Pieces that explainers share."""
