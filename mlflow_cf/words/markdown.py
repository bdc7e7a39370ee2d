"""Text of anybody's in Markdown, as it stands: MLflow's pages render descriptions and notes."""

from __future__ import annotations

import re
from typing import Final

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~$&])")
_BEGINS: Final = re.compile(r"^(\d*)([-+=.)])")  # of a list, or a heading
_ADDRESS: Final = re.compile(r"(:)(?=//)|(?<=\bwww)(\.)", re.IGNORECASE)  # would become a link


def plain(text: object) -> str:
    """Return text on one line that Markdown shows as it stands: nothing in it is a mark, an element or a link."""
    line = " ".join(str(text).split())
    line = _SPECIAL.sub(r"\\\1", line)
    line = _BEGINS.sub(r"\1\\\2", line)
    return _ADDRESS.sub(r"\\\g<0>", line)


def fenced(text: str) -> str:
    """Return text of several lines as a block that Markdown shows letter by letter."""
    return f"```text\n{text.replace('```', '` ` `')}\n```"
