"""One answered row as a document that can be checked again, and the check."""
