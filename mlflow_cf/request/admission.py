"""Limits how many requests are explained at once, and lets their searches pause while others are predicted."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from multiprocessing import parent_process
from pathlib import Path
from typing import Final, Generic, TypeVar

# MLflow answers requests on asyncio's pool of min(32, cores + 4) threads: searches never take the last four
MOST_PLACES: Final = 28
GIVE_WAY_S: Final = 0.05  # longest pause of a search
GIVE_WAY: Final = 4.0  # times the work since the last pause, so that searches go on even under constant predictions
SHORTEST_PAUSE_S: Final = 1e-3

# Modules of processes that have only one core to themselves (tasks of Spark).
CROWDED: Final = ("pyspark.daemon", "pyspark.worker")
CPU_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")  # Linux: microseconds of CPU per period, or "max"

Part = TypeVar("Part")
Done = TypeVar("Done")


def cores() -> int:
    """Return how many cores this process may use: by its affinity, and by its container's quota where there is one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = map(int, CPU_QUOTA.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return allowed
    return min(allowed, math.ceil(quota / period))


def crowded() -> bool:
    """Whether other processes, which do the same, have the other cores."""
    return parent_process() is not None or any(name in sys.modules for name in CROWDED)


class Admission:
    """Places for requests that are being explained; one object belongs to one model and all its threads.

    A request holds one place from its first search to its last proof. With places per row instead, concurrent requests
    would all run out of time with some rows unexplained, and the proofs that the rows of a request share would belong
    to none of them.

    Attributes:
        places: how many requests can be explained at once.
    """

    def __init__(self, places: int | None = None) -> None:
        """Set up `places`; None: one per core, as far as MLflow has threads for them."""
        self.places = min(cores(), MOST_PLACES) if places is None else places
        self._free = threading.Semaphore(self.places)
        self._patient = threading.Semaphore(self.places)
        self._predicting = 0
        self._changed = threading.Condition()
        self._paused = threading.local()  # when the last pause of each thread ended

    @contextmanager
    def entered(self, patience_s: float | None, *, served: bool = False) -> Iterator[bool]:
        """Hold a place for the time of a `with` block; it yields whether there was one.

        Args:
            patience_s: seconds to wait for a place; None: as long as it takes.
            served: whether the request waits on one of a server's few threads, which predictions need too: no more
                of them wait than there are places, the others are refused at once.
        """
        admitted = self._free.acquire(blocking=False)
        if not admitted and (not served or self._patient.acquire(blocking=False)):
            try:
                admitted = self._free.acquire(timeout=patience_s)
            finally:
                if served:
                    self._patient.release()
        try:
            yield admitted
        finally:
            if admitted:
                self._free.release()

    @contextmanager
    def more(self, most: int) -> Iterator[int]:
        """Hold up to `most` further places for the time of a `with` block; it yields how many were free.

        There are none in a process that has but one core to itself.
        """
        taken, most = 0, 0 if most > 0 and crowded() else most
        try:
            while taken < most and self._free.acquire(blocking=False):
                taken += 1
            yield taken
        finally:
            if taken:
                self._free.release(taken)

    def threads(self, further: int) -> int:
        """Return how many threads `shared` has at most, with up to so many `further` ones."""
        return 1 if crowded() else 1 + max(min(further, self.places - 1), 0)

    def shared(
        self,
        work: Callable[[Part], Done],
        parts: Sequence[Part],
        further: int,
        *,
        placed: bool = True,
    ) -> Iterator[Done]:
        """Yield what `work` makes of parts, in order; up to so many `further` threads help, where cores are free.

        The thread that reads them works, too, when the next one is not ready; the others go on while it does something
        else. A caller who is not `placed` holds no place of its own yet, and takes one for the time if one is free.
        """
        further = min(further, len(parts) - 1)
        own, queue = nullcontext() if placed or further < 1 else self.entered(0.0), _Parts(work, parts)
        with own, self.crew(queue.work_off, further):
            try:
                yield from queue.in_order()
            finally:
                queue.close()

    @contextmanager
    def crew(self, work: Callable[[], object], further: int) -> Iterator[None]:
        """Let up to so many further threads do some work for the time of a `with` block, where cores are free.

        The block ends when they do.
        """
        with self.more(further) as more:
            if not more:
                yield
                return
            with ThreadPoolExecutor(more, "mlflow-cf") as threads:
                for _ in range(more):
                    threads.submit(work)
                yield

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Let searches pause for the time of a `with` block that predicts."""
        with self._changed:
            self._predicting += 1
        try:
            yield
        finally:
            with self._changed:
                self._predicting -= 1
                self._changed.notify_all()

    def give_way(self) -> None:
        """Pause shortly while another request predicts: two threads that run Python have half the speed each."""
        if not self._predicting:
            return
        worked_s = time.perf_counter() - getattr(self._paused, "ended", 0.0)
        pause_s = min(GIVE_WAY * worked_s, GIVE_WAY_S)
        if pause_s < SHORTEST_PAUSE_S:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._predicting, pause_s)
        self._paused.ended = time.perf_counter()

    def __reduce__(self) -> tuple[type[Admission], tuple[int]]:
        """Copy the number of places only: requests that hold one belong to this process."""
        return Admission, (self.places,)


class _Parts(Generic[Part, Done]):
    """Parts of a work that several threads share."""

    def __init__(self, work: Callable[[Part], Done], parts: Sequence[Part]) -> None:
        self._work, self._parts = work, parts
        self._done = [Future[Done]() for _ in parts]
        self._left = iter(range(len(parts)))  # threads may share it: each number is handed out once

    def in_order(self) -> Iterator[Done]:
        """Yield what was made of all parts; the thread that reads this works on others while the next is not ready."""
        for done in self._done:
            while not done.done() and self._work_on_one():
                pass
            yield done.result()

    def work_off(self) -> None:
        """Work on parts as long as there are any."""
        while self._work_on_one():
            pass

    def close(self) -> None:
        """Begin no further part."""
        for _ in self._left:
            pass

    def _work_on_one(self) -> bool:
        """Work on the next part; return whether there was one."""
        at = next(self._left, None)
        if at is None:
            return False
        try:
            self._done[at].set_result(self._work(self._parts[at]))
        except Exception as error:  # noqa: BLE001  raised where the part is read
            self._done[at].set_exception(error)
        return True
