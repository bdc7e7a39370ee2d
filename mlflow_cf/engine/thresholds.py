"""The thresholds of the engine, each with what it was measured by: they decide how long it takes, not what it proves.

A sum is one raw score of one candidate. Budgets count evaluations of rows: one takes about as long as what 2**10 pairs
of changes add to a score, or as the sums of 2**8 candidates that are listed together.
"""

from __future__ import annotations

from typing import Final

# What may be off
SWEPT: Final = 1e-5  # of sums of sweeps and products: those of single rows, perhaps in float32, are rounded otherwise
SCORE_TOLERANCES: Final = 4  # tolerances of the opened model: scores may be off on either side of a comparison

# Pairs of changes
MOST_PAIRED: Final = 2**24  # numbers in the tables of a certificate: a third of a second
PAIRED_FIRST: Final = 2**21  # pairs that are looked at first where several answers are wanted
FARTHER: Final = 1.01  # than they are expected if effects add up; two changes mostly suffice within that
PAIRS_PER_ROW: Final = 2**10  # as many take about as long as the evaluation of a row
VALUES_AT_ONCE: Final = 2**20  # of both columns of all pairs that are looked at together: their classes take 8 MB
CELLS_AT_ONCE: Final = 2**22  # numbers of the tables of these pairs: 32 MB
LISTED_AT_ONCE: Final = 2**12  # pairs of values in the nearest blocks, and then so much more at a time:
MORE_LISTED: Final = 4
MOST_FOUND: Final = 20_000  # candidates of two changes; where there are more, most are not needed
FEW: Final = 4  # candidates of which one is mostly lawful; else so many times more are looked at, again and again:
MORE_LAWFUL: Final = 16

MOST_ADDED_UP: Final = 2**20  # what changes add to units, of all units, or beside features: 8 MB, some milliseconds
MOST_SCORED: Final = 2**19  # pairs of changes of models with units: 13 ms; on Credit 290,000 at most

# Changes of three features
MOST_TRIPLES: Final = 2**24  # cells of their grids: 10 ms; generations take as long
TRIPLES_PER_ROW: Final = 2**14  # take about as long as the evaluation of a row
FIRST_TRIPLES: Final = 1.1  # times the cheapest three changes is looked at first; 1.05 to 2 take the same time
MORE_TRIPLES: Final = 3.0  # times as far beyond these, if that was not enough
CELLS_PER_SECOND: Final = 2**30  # are looked at, at least; Credit: 1.3e9 to 2.6e9

# Candidates that many models must accept, where they are asked about those that some of them list
ASKED_FIRST: Final = 16  # candidates of which it is asked at first whether a model refuses them; then more:
MORE_ASKED: Final = 4
ASKED_AT_ONCE: Final = 4  # that all models may accept; CPU a row of Adult in one call 5.6 ms, with 8 or 16 of them 5.9

# What enough of many models of trees may accept, the nearest candidates first; times are in docs/survival.md
BOUNDS_PER_ROW: Final = 2**8  # of models' scores take about as long as the scores of a row by 30 models
BOUNDS_PER_SECOND: Final = 2**20  # are made, at least: one takes 0.4 to 0.8 us
MORE_AGREED: Final = 4  # times as many candidates are listed at once, where those before were no answers, and at most
MOST_AGREED: Final = 2**10
AGREED_SHARE: Final = 0.5  # of the budget of a search; the rest is for generations where that does not suffice
# Of that of a certificate, which starts again with the distance of the nearest known answer. With half, branch and
# bound in the other half proved none of the rows left: 2 of 40 of Adult, 4 of 20 of Credit, in as much time.
AGREED_IN_PROOFS: Final = 0.9

# Nodes of branch and bound
MOST_LEAST: Final = 3  # groups that must change at least, as far as bounds know
MOST_FLAGS: Final = 2**22  # of the parts of a node that are bounded in one go: 4 MB
MOST_LISTED: Final = 2**18  # sums of a node's candidates that are made together instead of parting it further
MOST_ALONE: Final = 128  # candidates of a node that are scored one by one
MORE_ALONE: Final = 128  # times as many, where most of them are dropped because a change is redundant
MOST_RULED: Final = 2_048  # nodes of a search among moves beside rules over several groups: a tenth of a second
MOST_SETS: Final = 256  # of changed groups that are bounded one by one: 8 ms in a forest, where generations take 20
FEW_CHANGED: Final = 6  # features of sets that are all looked at; of more, as long as half of the time lasts
# Of many models that must accept an answer, these bound nodes and refuse candidates first: half of them by the row, and
# half by the nearest answer that is known. CPU a row of certificates with 30 of XGBoost, eight rows of Adult with a
# margin and of German without: 174 and 161 ms; by the row alone 265 and 211, by the answer alone 154 and 394, with 10
# of them 173 and 204.
HARDEST: Final = 6
LONG_SEARCH: Final = 64  # nodes parted, a tenth of a second: a bound on the costs of all takes 20 ms in large forests
# Of the cutoff, a bound on the costs of all: forests have .47 to .78 on breast cancer, where bounds on costs prove half
# as many again of three answers, and 0 to .38 on Adult and Credit, where five answers take 1.2 times as long with them.
TELLING: Final = 0.43
MOST_CHECKED: Final = 16  # candidates, nearest first, of which one may lower the limit
LISTED_PER_ROW: Final = 2**8  # a row of a product takes so many times less than a row by itself
SET_UP: Final = 2**14  # rows of a product take as long as what comes before them
MOST_ADDED: Final = 4  # times as many rows of a product, to see which changes are redundant
FIRST_TESTED: Final = 16  # candidates of a changed set that are tested for redundant changes at once: often the first
MOST_TESTED: Final = 1_024  # one closes the set; the longer none does, the more of them
