"""Why a row has no counterfactual: what blocks it, what would help, and who is told."""

from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest
from laws import many
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.model.judge import Judge

RNG = np.random.default_rng(11)
DATA = pd.DataFrame(
    {
        "income": RNG.integers(0, 12, 300).astype("int64"),
        "debt": RNG.integers(0, 9, 300).astype("int64"),
        "years": RNG.integers(0, 7, 300).astype("int64"),
    }
)
GOOD = (DATA["income"] - DATA["debt"] + DATA["years"] > 6).astype(int)
FOREST = RandomForestClassifier(8, max_depth=4, random_state=0).fit(DATA, GOOD)
WEIGHED = DecisionTreeClassifier(max_depth=4, random_state=0).fit(DATA.assign(weight=0), GOOD)
LINEAR = LogisticRegression(max_iter=500).fit(DATA, GOOD)
GRID = pd.DataFrame([g.ravel() for g in np.meshgrid(*(np.unique(DATA[n]) for n in DATA))], index=DATA.columns).T


def lawful(x, constraints):
    """Rows of the grid that meet constraints given by path."""
    held = np.ones(len(GRID), dtype=bool)
    for path, value in constraints.items():
        key, name = path.split(".")[1:3]
        held &= {
            "immutable": lambda n, _: GRID[n] == x[n],
            "increasing": lambda n, _: GRID[n] >= x[n],
            "decreasing": lambda n, _: GRID[n] <= x[n],
            "ranges": lambda n, v: GRID[n].between(*v),
        }[key](name, value).to_numpy()
    return GRID[held & (x != GRID).any(axis=1)]


def constraints_of(paths):
    told = {}
    for path, value in paths.items():
        _, key, name = path.split(".")
        told.setdefault(key, {} if key == "ranges" else [])
        if key == "ranges":
            told[key][name] = value
        else:
            told[key].append(name)
    return told


def distances(table, x):
    change = (table - x).abs() / np.ptp(DATA, axis=0)
    return (0.5 * (change > 0) / 3 + 0.5 * change / 3).sum(axis=1)


def drawn(rng):
    """Constraints by path that often leave nothing."""
    paths = {}
    for name in DATA:
        choice = rng.integers(0, 4)
        if choice == 0:
            paths[f"constraints.immutable.{name}"] = None
        elif choice == 1:
            paths[f"constraints.{'decreasing' if name != 'debt' else 'increasing'}.{name}"] = None
        elif choice == 2:
            paths[f"constraints.ranges.{name}"] = (0, int(rng.integers(2, 6)))
    return paths


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("model", [FOREST, LINEAR], ids=["forest", "linear"])
def test_the_blocking_set_is_minimal_and_the_advice_the_cheapest(model, seed):
    rng = np.random.default_rng(seed)
    rejected = DATA[model.predict(DATA) == 0].reset_index(drop=True)
    seen = 0
    for _ in range(many(10, 32)):
        paths = drawn(rng)
        x = rejected.iloc[int(rng.integers(len(rejected)))]

        def exists(kept, x=x, paths=paths):
            rows = lawful(x, {path: paths[path] for path in kept})
            return len(rows) > 0 and bool((model.predict(rows) == 1).any())

        if exists(paths):
            continue
        seen += 1
        explained = mlflow_cf.wrap(model, DATA, constraints=constraints_of(paths), why_not="full")
        (answer,) = explained.explain(x.to_frame().T.astype("int64"), certify=True)
        assert answer.status == "infeasible"
        told = answer.diagnostics["why_not"]
        blocking = told["blocking"]
        assert told["minimal"]
        assert not exists(blocking)
        subsets = chain.from_iterable(combinations(blocking, size) for size in range(len(blocking)))
        assert all(exists(kept) for kept in subsets)
        for path, far in told["relaxations"].items():
            rest = {p: v for p, v in paths.items() if p != path}
            rows = lawful(x, rest)
            good = rows[model.predict(rows) == 1] if len(rows) else rows
            assert (far is None) == (not len(good))
            if far is not None:
                assert far == pytest.approx(distances(good, x).min())
    assert seen


REFUSED = DATA[FOREST.predict(DATA) == 0].sort_values("income")[:1]


def reason_of(constraints, **query):
    (answer,) = mlflow_cf.wrap(FOREST, DATA, constraints=constraints).explain(REFUSED, certify=True, **query)
    assert answer.status == "infeasible"
    return answer.reason


def test_a_limit_is_named_with_the_value_that_helps():
    reason = reason_of({"ranges": {"income": [0, 1]}, "immutable": ["debt", "years"]})
    assert reason == (
        "raise the limit of income from 1 to 9; ruled out by constraints.immutable.years and constraints.ranges.income"
    )


def test_a_served_model_never_advises_to_relax_the_policy():
    explained = mlflow_cf.wrap(FOREST, DATA, constraints={"immutable": ["debt", "years"], "ranges": {"income": [0, 1]}})
    asked = {"counterfactual": {"certify": True}}
    (record,) = explained.predict(REFUSED, asked).to_dict("records")
    assert record["status"] == "infeasible"
    assert "raise" not in record["reason"]
    assert "let " not in record["reason"]


def test_constraints_of_one_kind_are_told_together() -> None:
    """However many features are immutable, the advice comes first and the others are counted."""
    names = ["income", "a", "b", "c", "d", "e"]
    wide = pd.DataFrame(np.vstack([np.zeros((6, 6)), 9 * np.eye(6)]).astype(int), columns=names)
    model = DecisionTreeClassifier(random_state=0).fit(wide, (wide > 5).any(axis=1).astype(int))
    constraints = {"immutable": ["a", "b", "c", "d", "e"], "ranges": {"income": [0, 1]}}
    (answer,) = mlflow_cf.wrap(model, wide, constraints=constraints, why_not="full").explain(wide[:1], certify=True)
    assert answer.reason in [
        f"{advice}; no feature may change: constraints.ranges.income and "
        "5 features of constraints.immutable (a, b, c, 2 more)"
        for advice in ("raise the limit of income from 1 to 9", "let a go from 0 to 9")
    ]
    constraints["ranges"]["income"] = [0, 5]
    some = pd.concat([wide, wide[:1].assign(income=4)])
    (answer,) = mlflow_cf.wrap(model, some, constraints=constraints, why_not="full").explain(wide[:1], certify=True)
    advice, causes = answer.reason.split("; ")
    assert advice in ("raise the limit of income from 5 to 9", "let a go from 0 to 9")
    assert causes == (
        "ruled out by 5 features of constraints.immutable (a, b, c, 2 more) and constraints.ranges.income"
    )


@pytest.mark.parametrize("owner", [True, False])
def test_the_policys_limit_on_changes_is_its_owners_to_relax(owner: bool) -> None:  # noqa: FBT001
    """An answer needs two changes, and one is allowed: by the policy, or by the request itself."""
    both = pd.DataFrame([g.ravel() for g in np.meshgrid(range(10), range(10))], index=["a", "b"]).T
    model = DecisionTreeClassifier(random_state=0).fit(both, ((both["a"] > 5) & (both["b"] > 5)).astype(int))
    row, asked = both[:1], {"certify": True, "constraints": {"ranges": {"a": [0, 9]}}}
    explained = mlflow_cf.wrap(model, both, constraints={"max_changes": 1})
    if owner:
        (answer,) = explained.explain(row, constraints=asked["constraints"], certify=True)
        assert answer.reason == "allow 2 changes instead of 1; ruled out by policy.constraints.max_changes"
    else:
        (record,) = explained.predict(row, {"counterfactual": asked}).to_dict("records")
        assert record["reason"] == "policy.constraints.max_changes rules out every counterfactual"
    free = mlflow_cf.wrap(model, both, constraints={"max_changes": 2})
    asked["constraints"] = {"max_changes": 1}
    (record,) = free.predict(row, {"counterfactual": asked}).to_dict("records")
    assert record["reason"] == "allow 2 changes instead of 1; ruled out by constraints.max_changes"


def test_a_request_may_be_advised_about_its_own_constraints():
    explained = mlflow_cf.wrap(FOREST, DATA, constraints={"immutable": ["years"]})
    asked = {"counterfactual": {"certify": True, "constraints": {"ranges": {"income": [0, 1]}, "immutable": ["debt"]}}}
    (record,) = explained.predict(REFUSED, asked).to_dict("records")
    assert record["status"] == "infeasible"
    assert "income" in record["reason"]
    assert "let years" not in record["reason"]


def test_the_budget_covers_the_advice():
    explained = mlflow_cf.wrap(FOREST, DATA, constraints={"immutable": ["debt", "years"], "ranges": {"income": [0, 1]}})
    for most in (5, 40, 200):
        (answer,) = explained.explain(REFUSED, certify=True, max_evaluations=most)
        assert answer.evaluations <= most


class TestGroups:
    """What groups leave is a constraint like the others, and so is what k-anonymity leaves of them."""

    # All combinations that would be wanted have one row, and one that is not wanted has many.
    RARE = pd.concat(
        [
            pd.DataFrame({"income": [1] * 40, "debt": [8] * 40, "years": [1] * 40}),
            pd.DataFrame({"income": [2, 9, 10], "debt": [7, 1, 0], "years": [3, 4, 6]}),
        ],
        ignore_index=True,
    )
    MODEL = DecisionTreeClassifier(random_state=0).fit(DATA, (DATA["income"] > 5) & (DATA["debt"] < 2))

    def test_combinations_that_are_withheld_are_no_proof_about_the_model(self):
        """So few rows share a tuple of the request's own group that nothing is left: not "without constraints"."""
        explained = mlflow_cf.wrap(self.MODEL, self.RARE, target=True)
        (free,) = explained.predict(self.RARE[:1]).to_dict("records")
        assert free["status"] == "found"
        (record,) = explained.predict(
            self.RARE[:1], {"counterfactual": {"constraints": {"groups": [["income", "debt", "years"]]}}}
        ).to_dict("records")
        assert record["status"] == "infeasible"
        assert "privacy.k_anonymous" in record["reason"]
        assert "even without constraints" not in record["reason"]
        two = {"counterfactual": {"constraints": {"groups": [["income", "debt"]]}}}
        (record,) = explained.predict(self.RARE[:1], two).to_dict("records")
        assert record["reason"] == (
            "no row with values of the background and with the combinations that constraints.groups[0] may take is "
            "predicted as wanted, even without other constraints (proved); "
            "privacy.k_anonymous withholds combinations of constraints.groups[0] that few rows share"
        )

    def test_a_group_of_the_policy_is_the_owners_to_leave_out(self):
        explained = mlflow_cf.wrap(self.MODEL, self.RARE, target=True, constraints={"groups": [["income", "debt"]]})
        (record,) = explained.predict(self.RARE[:1]).to_dict("records")
        assert record["reason"] == (
            "no row with values of the background and with the combinations that constraints.groups[0] may take is "
            "predicted as wanted, even without other constraints (proved); "
            "privacy.k_anonymous withholds combinations of constraints.groups[0] that few rows share"
        )
        assert explained.explain(self.RARE[:1])[0].status == "found"

    def test_what_a_group_rules_out_is_named(self):
        """Together income and debt have what the model refuses alone, and apart what it wants."""
        frame = pd.DataFrame({"income": [1, 1, 9, 9], "debt": [8, 0, 8, 7], "years": [1, 2, 1, 2]})
        explained = mlflow_cf.wrap(self.MODEL, frame, target=True, constraints={"groups": [["debt", "income"]]})
        (found,) = explained.explain(frame[:1], certify=True)
        assert found.reason == "leave out constraints.groups[0]; ruled out by constraints.groups[0]"
        assert found.diagnostics["why_not"]["blocking"] == ["constraints.groups[0]"]
        assert found.diagnostics["why_not"]["withheld"] == []


STRICT = {"immutable": ["debt", "years"], "ranges": {"income": [0, 1]}}


class TestHowMuch:
    """How much is found out: by the policy, or by a request within it."""

    def records(self, asked, **options):
        explained = mlflow_cf.wrap(FOREST, DATA, constraints={}, **options)
        request = {"constraints": STRICT, "certify": True, **asked}
        return explained.predict(REFUSED, {"counterfactual": request}).to_dict("records")[0]

    def test_nothing_is_looked_for_where_that_is_asked(self):
        plain = "no admissible row is predicted as wanted (proved)"
        assert self.records({"why_not": False})["reason"] == plain
        assert self.records({}, why_not=False)["reason"] == plain
        assert self.records({"why_not": False})["evaluations"] < self.records({"why_not": "quick"})["evaluations"]

    def test_a_policy_without_reasons_forbids_requests_to_ask(self):
        with pytest.raises(InputError, match=r"why_not: 'full' is more than the policy's false"):
            self.records({"why_not": "full"}, why_not=False)
        owner = mlflow_cf.wrap(FOREST, DATA, constraints=STRICT, why_not=False)
        assert "raise the limit" in owner.explain(REFUSED, certify=True, why_not="full")[0].reason

    def test_quick_reasons_take_a_tenth_of_the_evaluations(self):
        explained = mlflow_cf.wrap(FOREST, DATA, constraints=STRICT)
        (without,) = explained.explain(REFUSED, certify=True, why_not=False)
        (quick,) = explained.explain(REFUSED, certify=True)
        (full,) = explained.explain(REFUSED, certify=True, why_not="full")
        assert without.evaluations < quick.evaluations <= without.evaluations + 5_000
        assert quick.evaluations < full.evaluations
        assert quick.reason.split("; ")[0] == full.reason.split("; ")[0]
        assert len(quick.diagnostics["why_not"]["relaxations"]) <= len(full.diagnostics["why_not"]["relaxations"])

    def test_a_reason_does_not_depend_on_the_rows_beside_it(self):
        explained = mlflow_cf.wrap(FOREST, DATA, constraints=STRICT)
        rows = DATA[FOREST.predict(DATA) == 0][:12]
        together = explained.explain(rows, certify=True)
        for number in range(0, 12, 4):
            (alone,) = explained.explain(rows.iloc[[number]], certify=True)
            assert (alone.reason, alone.evaluations) == (together[number].reason, together[number].evaluations)

    @pytest.mark.parametrize(("rows", "calls"), [(1, 1), (12, 2)])
    def test_the_model_is_asked_for_the_reasons_of_all_rows_together(self, rows, calls, monkeypatch):
        model = LogisticRegression().fit(DATA, DATA["income"] > 5)
        explained = mlflow_cf.wrap(model, DATA, constraints={"relative": {"income": {"up": 0}}, "immutable": ["debt"]})
        some = DATA[DATA["income"] < 3].head(rows)
        explained.explain(some)
        asked, own = [], Judge.predict
        monkeypatch.setattr(Judge, "predict", lambda judge, table: asked.append(len(table)) or own(judge, table))
        told = explained.explain(some, explainer="nearest_row")
        assert all("constraints.relative.income" in answer.reason for answer in told)
        assert len(asked) <= calls

    def test_other_words_are_refused(self):
        with pytest.raises(InputError, match="why_not"):
            self.records({"why_not": "slow"})


@pytest.mark.parametrize("values", ["continuous", "grid"])
def test_a_frozen_number_may_have_any_number_of_steps(values):
    """What is never proposed needs no grid."""
    wide = DATA.assign(weight=RNG.integers(10_000, 1_500_000, len(DATA)))
    with pytest.raises(InputError, match=r"features\.weight\.step: .* use a larger step, make it immutable, or "):
        mlflow_cf.wrap(WEIGHED, wide, values=values)
    explained = mlflow_cf.wrap(WEIGHED, wide, values=values, constraints={"immutable": ["weight"]})
    (found,) = explained.explain(wide[WEIGHED.predict(wide) == 0][:1], explainer="exact")
    assert (found.status, found.counterfactuals[0].proof) == ("found", "optimal")
