"""Colours and letters of all figures."""

from __future__ import annotations

from typing import Final

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart; the last is for all others.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A")


def literal(text: str) -> str:
    """Return text that matplotlib takes neither as a formula nor as a hidden label."""
    return f"{' ' if text.startswith('_') else ''}{text}".replace("$", r"\$")
