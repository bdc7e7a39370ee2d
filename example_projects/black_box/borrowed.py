"""What this example shares with the credit example: MLflow's server as a child process, its store, progress."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "credit"))

from progress import Progress, end_on_signals
from server import ask, serving
from store import use_store

__all__ = ["Progress", "ask", "end_on_signals", "serving", "use_store"]
