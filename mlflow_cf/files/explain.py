"""Explain the rows of parquet files into another one: memory stays flat, and an interrupted run is taken up again."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.files.answers import Lines, answer_block
from mlflow_cf.files.parts import Parts
from mlflow_cf.files.rows import Block, RowFiles
from mlflow_cf.request.admission import Admission
from mlflow_cf.version import VERSION
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.sentences import counted

Do: TypeAlias = Callable[..., Future[Any]]  # does a work with what it is given, at once or soon

LONG_S: Final = 2.0  # work that takes less needs no bar
TIME_LIMIT: Final = "time_limit_s"


@dataclass(frozen=True)
class Asked:
    """What is asked of the rows of files.

    Attributes:
        params: options of the request; a ``time_limit_s`` among them is that of all rows together.
        only: rows of these statuses are written; none: all.
        key: the column that tells rows apart, which is written beside each answer.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    only: Collection[str] = ()
    key: str | None = None


def explain_files(explained: ExplainedModel, model_sha256: str, rows: RowFiles, output: Path, asked: Asked) -> str:
    """Explain rows block by block into the parquet file `output`; return how many there are of each status.

    Finished blocks are kept beside the output and taken up again where model, rows and options are the same. The file
    gets its name once it is whole.

    Args:
        explained: the model; `model_sha256`: the digest of its artifact, by which parts of other models are told.
        rows: the files of rows; output: the file of answers, one line per counterfactual, or per row without one.
        asked: the options.

    Raises:
        InputError: options that do not fit, or an output that cannot be written; what is finished stays.
    """
    key = None if asked.key is None else pq.read_schema(rows.files[0]).field(asked.key)
    lines = Lines.of(explained, asked.params, key)
    parts = Parts(output, _digest(model_sha256, rows, asked), lines.schema)
    statuses = parts.begin()
    total, taken_up = rows.total, sum(block.rows for block in rows.blocks[: len(statuses)])
    with _bar(total, taken_up) as bar, parts.whole(len(statuses)) as add, _beside(explained.admission) as do:

        def write(answers: Explanations, block: Block, keys: pa.ChunkedArray | None) -> None:
            coded = answers.coded()
            kept = [place for place, one in enumerate(coded.statuses) if not asked.only or one in asked.only]
            statuses.append(Counter(coded.statuses))
            add(lines.table(coded, kept, block.start, keys), statuses[-1])
            bar.update(block.rows)

        written = None
        for block, table, keys in _ahead(rows.read(len(statuses)), do):
            answers = answer_block(explained, table, _shared(asked.params, block.rows / total))
            if written is not None:
                written.result()
            written = do(write, answers, block, keys)
        if written is not None:
            written.result()
    counts = sum(statuses, Counter())
    told = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    again = f" ({taken_up:,} of them taken up again)" if taken_up else ""
    return f"{counted(total, 'row')}: {told}{again}"


def _digest(model_sha256: str, rows: RowFiles, asked: Asked) -> str:
    """Return the digest of everything that the lines depend on, and of how they are parted."""
    said = {
        "version": VERSION,
        "model": model_sha256,
        "rows": rows.sha256,
        "columns": rows.columns,
        "block_rows": rows.block_rows,
        "params": asked.params,
        "only": sorted(asked.only),
        "key": asked.key,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _shared(params: Mapping[str, Any], share: float) -> Mapping[str, Any]:
    """Return the options of a block: it has its share of the time limit of all."""
    limit: Any = params.get(TIME_LIMIT)
    number = isinstance(limit, int | float) and not isinstance(limit, bool)  # whatever else it is, it is refused later
    return {**params, TIME_LIMIT: limit * share} if number else params


@contextmanager
def _beside(admission: Admission) -> Iterator[Do]:
    """Yield what does works in turn on a thread of its own, or at once where there is one core for all.

    The thread holds no place of the `admission`: it reads and writes, which takes little of a core.
    """
    if admission.threads(1) == 1:
        yield _at_once
        return
    with ThreadPoolExecutor(1, "mlflow-cf-files") as thread:
        yield thread.submit


def _at_once(work: Callable[..., Any], *given: Any) -> Future[Any]:
    done: Future[Any] = Future()
    try:
        done.set_result(work(*given))
    except Exception as error:  # noqa: BLE001  raised where the result is wanted, as that of a thread is
        done.set_exception(error)
    return done


def _ahead(items: Iterator[Any], do: Do) -> Iterator[Any]:
    """Yield items; the next one is made meanwhile."""
    coming = do(next, items, None)
    while (item := coming.result()) is not None:
        coming = do(next, items, None)
        yield item


def _bar(total: int, done: int) -> Any:
    """Return a bar of all rows; it is shown at a terminal alone, and only if it takes long."""
    hidden = not sys.stderr.isatty()
    return tqdm(total=total, initial=done, desc="explaining", unit="row", delay=LONG_S, leave=False, disable=hidden)
