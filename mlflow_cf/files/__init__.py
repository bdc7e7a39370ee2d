"""Files of rows of any length in, a file of answers out, with no more than a part of either in memory."""
