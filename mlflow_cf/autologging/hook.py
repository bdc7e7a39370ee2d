"""A function of somebody else's class, followed by one of ours for as long as that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from threading import Lock
from typing import Any

After = Callable[[Any, dict[str, Any]], None]


@dataclass
class Hook:
    """Calls `after` behind each call of a class method, in the thread that called; the method's result stays its own.

    It is put once however often it is asked for, and taking it away leaves the very object that was there before. Where
    somebody has wrapped the method again in the meantime, theirs stays, and ours in it calls nothing but the method.

    Attributes:
        owner, name: the class and its class method.
        after: is told the result and the keyword arguments of a call that raised nothing; it must raise nothing either.
    """

    owner: type
    name: str
    after: After
    _lock: Lock = field(default_factory=Lock, repr=False)
    _before: Any = field(default=None, repr=False)
    _ours: Any = field(default=None, repr=False)
    _wanted: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the class has our method now."""
        return self._ours is not None and vars(self.owner).get(self.name) is self._ours

    def put(self) -> None:
        """Be told of calls from now on."""
        with self._lock:
            self._wanted = True
            if self._ours is None:
                self._before = vars(self.owner)[self.name]
                self._ours = classmethod(self._followed(self._before))
                setattr(self.owner, self.name, self._ours)

    def take_away(self) -> None:
        """Leave the class as it was."""
        with self._lock:
            self._wanted = False
            if self.in_place:
                setattr(self.owner, self.name, self._before)
                self._before = self._ours = None

    def _followed(self, before: Any) -> Callable[..., Any]:
        """Return the method that calls the one `before` and then ours."""

        @wraps(before.__func__)
        def followed(cls: type, *args: Any, **kwargs: Any) -> Any:
            result = before.__get__(None, cls)(*args, **kwargs)
            if self._wanted:
                self.after(result, kwargs)
            return result

        return followed
