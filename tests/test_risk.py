"""Risk figures: by hand, as laws, and on a model that learns by heart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression

from mlflow_cf import InputError
from mlflow_cf.metrics import Labelled, extraction_fidelity, membership_auc

DISTANCES = arrays(float, st.integers(1, 8), elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, np.nan]))


def pairs(members, others):
    """Return the share of pairs in which the member is further away; ties count half."""
    members, others = members[~np.isnan(members)], others[~np.isnan(others)]
    wins = [(one > other) + (one == other) / 2 for one in members for other in others]
    return np.mean(wins) if wins else None


class TestMembership:
    def test_by_hand(self):
        assert membership_auc(np.array([0.4, 0.2]), np.array([0.1, 0.3])) == 0.75
        assert membership_auc(np.array([0.5, np.nan]), np.array([0.5])) == 0.5
        assert membership_auc(np.array([np.nan]), np.array([0.5])) is None
        assert membership_auc(np.array([0.5]), np.empty(0)) is None

    @given(DISTANCES, DISTANCES)
    def test_it_is_the_share_of_pairs(self, members, others):
        expected = pairs(members, others)
        assert membership_auc(members, others) == (None if expected is None else pytest.approx(expected))

    @given(DISTANCES, DISTANCES)
    def test_sides_swapped_add_up_to_one(self, members, others):
        one, other = membership_auc(members, others), membership_auc(others, members)
        assert (one is None and other is None) or one + other == pytest.approx(1)


class TestExtraction:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2_000, 3))
    labels = (rows @ [1.0, -2.0, 0.5] > 0.3).astype(int)

    def of(self, some):
        return Labelled(self.rows[some], self.labels[some])

    def test_more_queries_copy_better_and_a_seed_repeats(self):
        held_out = self.of(slice(1_000, None))
        few, many = (extraction_fidelity(self.of(slice(0, queries)), held_out) for queries in (20, 1_000))
        assert few < many > 0.93
        assert extraction_fidelity(self.of(slice(0, 1_000)), held_out) == many

    def test_pairs_across_the_boundary_copy_better_than_rows(self):
        """A counterfactual lies just beyond the boundary, which is what an attacker wants to know."""
        asked, held_out = self.rows[:60], self.of(slice(1_000, None))
        normal = np.array([1.0, -2.0, 0.5])
        beyond = asked - np.outer((asked @ normal - 0.3) * 1.02 / (normal @ normal), normal)
        labels = (beyond @ normal > 0.3).astype(int)
        both = Labelled(np.vstack([asked, beyond]), np.concatenate([self.labels[:60], labels]))
        assert extraction_fidelity(both, held_out) > extraction_fidelity(self.of(slice(0, 60)), held_out)

    def test_a_single_label_missing_values_and_nothing(self):
        held_out = self.of(slice(1_000, None))
        single = Labelled(self.rows[self.labels == 1][:5], np.ones(5, dtype=int))
        assert extraction_fidelity(single, held_out) == np.mean(held_out.labels)
        gaps = np.where(self.rng.random((200, 3)) < 0.1, np.nan, self.rows[:200])
        assert 0 <= extraction_fidelity(Labelled(gaps, self.labels[:200]), held_out) <= 1
        assert extraction_fidelity(self.of(slice(0)), held_out) is None
        assert extraction_fidelity(single, self.of(slice(0))) is None

    def test_labels_that_do_not_belong(self):
        with pytest.raises(InputError, match=r"labels: \(2,\) labels for rows \(3, 3\)"):
            Labelled(self.rows[:3], self.labels[:2])


def test_a_model_that_learns_by_heart_gives_its_members_away():
    """Its margin, in place of a distance, is wider on what it has seen."""
    rng = np.random.default_rng(1)
    rows, labels = rng.normal(size=(60, 80)), rng.integers(0, 2, 60)
    model = LogisticRegression(C=100.0, max_iter=2_000).fit(rows[:30], labels[:30])
    margin = np.abs(model.decision_function(rows))
    assert membership_auc(margin[:30], margin[30:]) > 0.6
