"""The logged model as the rest of the package sees it."""
