"""The version of this distribution; it stands in every artifact."""

from typing import Final

VERSION: Final = "0.1.0"
