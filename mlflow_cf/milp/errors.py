"""What a mixed-integer program cannot say."""


class NotLinearError(Exception):
    """Something that rows cannot express exactly; the message says what."""
