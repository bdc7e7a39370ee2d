"""The what-if page: a local page on which one row is changed, constrained, explained and compared between versions."""
