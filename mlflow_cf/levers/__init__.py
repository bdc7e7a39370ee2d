"""What each set of levers can do for a row: the nearest answer, or the proof of none, and how much of it turns it."""
