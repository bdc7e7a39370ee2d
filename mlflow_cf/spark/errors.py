"""What went wrong in Spark's workers, in a line."""

from __future__ import annotations

from typing import Final

from pyspark.errors import PySparkException

MOST_SHOWN: Final = 300  # characters of an error of a worker


def told(error: PySparkException) -> str:
    """Return the last line of an error of Python among the lines of one of Java."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    named = [line for line in lines if line.split(":")[0].endswith("Error")]
    return (named[-1] if named else lines[0] if lines else "no message")[:MOST_SHOWN]
