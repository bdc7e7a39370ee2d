"""What is verified of given rows is what the pipeline and the independent checker say of them."""

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from worlds import background, checker_of, constraint_dicts, explained, lottery, row_dicts, table, wide_rows

from mlflow_cf.errors import InputError
from mlflow_cf.explainers import Explainer, GeCo, NearestRow

seeds = st.integers(0, 40)


@given(seeds, constraint_dicts, constraint_dicts, wide_rows, st.sampled_from([GeCo(), NearestRow()]))
def test_every_answer_is_verified(
    seed: int, policy: dict[str, Any], request: dict[str, Any], query: dict[str, Any], explainer: Explainer
) -> None:
    frame = background(seed)
    wrapped = explained(lottery(seed, 0.3), frame, policy)
    row = table([query], frame)
    try:
        (found,) = wrapped.explain(row, count=3, constraints=request, explainer=explainer)
    except InputError:
        return  # the request would loosen the policy
    if not found.counterfactuals:
        return
    others = table([dict(answer.row) for answer in found.counterfactuals], frame)
    for answer, said in zip(found.counterfactuals, wrapped.verify(row, others, constraints=request), strict=True):
        assert said.ok, said
        assert (said.prediction, said.distance, said.n_changed) == (
            answer.prediction,
            answer.distance,
            answer.n_changed,
        )
        assert not (isinstance(explainer, GeCo) and said.needless)


@dear(2)
@given(seeds, constraint_dicts, wide_rows, st.lists(wide_rows, min_size=1, max_size=4), st.integers(0, 2**16))
def test_given_rows_are_judged_as_the_checker_does(
    seed: int, constraints: dict[str, Any], query: dict[str, Any], odd: list[dict[str, Any]], draw: int
) -> None:
    frame, model = background(seed), lottery(seed, 0.5)
    wrapped, checker = explained(model, frame, constraints), checker_of(model, frame, constraints)
    names = list(query)
    others = [
        {name: line[name] if (draw >> (at + place)) & 1 else query[name] for place, name in enumerate(names)}
        for at, line in enumerate([*row_dicts(frame)[:6], *odd])
    ]
    rows = table(others, frame)
    found = wrapped.verify(pd.concat([table([query], frame)] * len(others)), rows)
    for row, label, said in zip(others, model.decide(rows), found, strict=True):
        assert said.fault == ""
        assert (said.prediction, said.valid) == (label, label == "yes")
        assert said.ok == (checker.accepts(query, row) and label == "yes")
        keys = {fault.split()[0] for fault in checker.broken(query, row) if fault != "nothing changed"}
        assert {path.split(".")[1].split("[")[0] for path in said.broken} - {"groups"} == keys
        assert bool(said.inadmissible) == bool([*checker.unknown_values(query, row)])
        assert said.distance == pytest.approx(
            float(wrapped.bound_policy.bound_distance.distance(*_coded(wrapped, query, row, frame))[0])
        )
        for group in said.needless or ():
            back = {**row, **{name: query[name] for name in group}}
            assert checker.accepts(query, back)
            assert model.decide(table([back], frame))[0] == "yes"


def _coded(wrapped: Any, query: dict[str, Any], row: dict[str, Any], frame: pd.DataFrame) -> Any:
    both = table([query, row], frame)
    codes = wrapped.space.covering(both).encode(both)
    return tuple(domain.columns for domain in wrapped.bound_policy.domains), codes[1:], codes[0]
