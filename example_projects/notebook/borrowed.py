"""What this example shares with the credit example: where runs and models are kept."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "credit"))

from store import use_store

__all__ = ["use_store"]
