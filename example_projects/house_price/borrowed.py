"""What this example shares with the credit example: where runs and models are kept, lines of progress."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "credit"))

from progress import Progress, end_on_signals
from store import use_store

__all__ = ["Progress", "end_on_signals", "use_store"]
