"""What an answer says, as objects, records and sentences."""
