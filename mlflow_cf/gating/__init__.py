"""Whether a new version may go live: compared with the champion, held against thresholds, and told in its tags."""
