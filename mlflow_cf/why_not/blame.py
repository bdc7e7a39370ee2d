"""Why no counterfactual can exist: a smallest set of rules that leaves no candidate.

Also the naming of constraints in a sentence, those of one kind together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import combinations
from math import prod

import numpy as np

from mlflow_cf.constraints import Origin
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.features import Floats
from mlflow_cf.problem import Group, Problem
from mlflow_cf.words.statements import say

WITHHOLDS = "privacy.k_anonymous"
MOST_ROWS = 200_000  # combinations tried to prove that linked rules contradict each other
FEW = 2  # constraints of one kind that are named by their paths
SHOWN = 3  # constraints of a kind of which there are more that are named
MOST_WORK = 4_000_000  # combinations tried for all of them together; a fraction of a second


def impossible(problem: Problem) -> str:
    """Return why no admissible row exists if one look at every group shows it, else ""."""
    for rule in problem.never:
        return say("cannot_hold", path=rule.origin.path, rule=rule.text)
    for group in problem.groups:
        if not group.own_allowed and group.interval is None and not group.proposals:
            names = tuple(problem.space.names[column] for column in group.columns)
            rules = _blocking(problem, [group])
            phrase = "leaves_no_value" if len(rules) + group.domain.withheld == 1 else "leave_no_value"
            return say(phrase, features=names, causes=_causes(rules, [group]))
    must = [number for number, group in enumerate(problem.groups) if not group.own_allowed]
    for limit in problem.limits if must else ():
        counts, groups, least = problem.counts_of(limit), [problem.groups[number] for number in must], 0
        for number, group in zip(must, groups, strict=True):  # how many changes it is at least if it changes
            least += int(np.delete(counts[number], group.own).min(initial=len(group.columns)))
        if least > limit.most:
            causes = _causes([rule for group in groups for rule in group.rules], groups)
            return say("too_many", least=least, path=limit.origin.path, causes=causes)
    if not any(group.interval or group.proposals for group in problem.groups):
        causes = _causes([rule for group in problem.groups for rule in group.rules], problem.groups)
        return say("nothing_may_change", causes=causes)
    return ""


def no_row_left(problem: Problem) -> str:
    """Return which constraints no favourable background row meets, if that is so, else ""."""
    rows = problem.background[problem.rate_background().favourable]
    if not len(rows):
        return say("no_wanted_row")
    constant = [column for column, feature in enumerate(problem.space.features) if feature.constant]
    rows[:, constant] = problem.x0[constant]  # rows keep their own
    if problem.check(rows).any():
        return ""
    limits = [limit.rule for limit in problem.limits]
    rules = [*(rule for group in problem.groups for rule in group.rules), *problem.linking, *limits]
    causes = _causes(_fewest(problem, list(dict.fromkeys(rules)), rows), problem.groups)
    return say("no_lawful_row", causes=causes)


def contradiction(problem: Problem) -> str:
    """Return which rules over several groups contradict each other for this row, else "".

    Tries single rules, then pairs, over all combinations of the groups they speak of, where these are few enough.
    """
    if any(group.interval for group in problem.groups):
        return ""  # the actions are samples then, and prove nothing
    work = 0
    for size in (1, 2):
        for rules in combinations(problem.linking, size):
            groups = _involved(problem, rules)
            if size > 1 and len(groups) == sum(len(_involved(problem, [rule])) for rule in rules):
                continue  # no group in common: what holds alone holds together
            rows = prod(len(group.actions) for group in groups)
            if rows > MOST_ROWS:
                continue
            work += rows
            if work > MOST_WORK:
                return ""
            if _never_together(problem, rules, groups):
                return _disagreement(problem, rules, groups)
    return ""


def _disagreement(problem: Problem, rules: Sequence[Rule], groups: Sequence[Group]) -> str:
    fewest = _blocking(problem, groups, rules)
    if len(fewest) == 1:
        sentence = say("cannot_hold", path=fewest[0].origin.path, rule=fewest[0].text)
    else:
        sentence = say("contradict", causes=_causes(fewest, []))
    together = [group for group in groups if len(group.columns) > 1]
    if not together:
        return sentence
    names = [
        say("features", names=tuple(problem.space.names[column] for column in group.columns)) for group in together
    ]
    named = reduce(lambda first, last: say("and_of", first=first, last=last), names)
    sentence = say("combinations", sentence=sentence, groups=named)
    rare = any(group.domain.withheld for group in together)
    return say("rare", sentence=sentence, path=WITHHOLDS) if rare else sentence


def _involved(problem: Problem, rules: Sequence[Rule]) -> list[Group]:
    columns = frozenset().union(*(rule.columns("x_cf") for rule in rules))
    return [group for group in problem.groups if columns & set(group.columns)]


def _never_together(problem: Problem, rules: Sequence[Rule], groups: Sequence[Group]) -> bool:
    """Whether no combination of the groups' actions meets all the rules; False if there are too many to tell."""
    rows = _rows(problem, groups, [g.actions[(np.arange(len(g.actions)) != g.own) | g.own_allowed] for g in groups])
    if rows is None:
        return False
    return not np.logical_and.reduce([rule.holds(rows, problem.x0) for rule in rules]).any()


def _blocking(problem: Problem, groups: Sequence[Group], rules: Sequence[Rule] = ()) -> Sequence[Rule]:
    """Return the fewest of `rules`, and of the groups' own, that together reject the whole domains of the groups."""
    domains = []
    for group in groups:
        own = problem.x0[list(group.columns)]
        proposed = ~(np.isnan(group.domain.actions) & ~np.isnan(own)).any(axis=1)  # no missing part
        domains.append(np.vstack([own, group.domain.actions[proposed]]))
    all_rules = (*rules, *(rule for group in groups for rule in group.rules))
    return _fewest(problem, all_rules, _rows(problem, groups, domains))


def _fewest(problem: Problem, rules: Sequence[Rule], rows: Floats | None) -> Sequence[Rule]:
    """Return one or two of the rules that hold together in none of the rows; all of them if there are no such."""
    if rows is None:
        return rules
    held = {rule: rule.holds(rows, problem.x0) for rule in rules}
    for size in (1, 2):
        for some in combinations(rules, size):
            if not np.logical_and.reduce([held[rule] for rule in some]).any():
                return some
    return rules


def _rows(problem: Problem, groups: Sequence[Group], actions: Sequence[Floats]) -> Floats | None:
    """Return the row with every combination of the groups' actions; None if there are too many."""
    count = prod(map(len, actions))
    if count > MOST_ROWS:
        return None
    rows = np.tile(problem.x0, (count, 1))
    repeated = count
    for group, values in zip(groups, actions, strict=True):
        repeated //= max(len(values), 1)
        rows[:, group.columns] = np.resize(values.repeat(repeated, axis=0), (count, len(group.columns)))
    return rows


def _causes(rules: Iterable[Rule], groups: Iterable[Group]) -> tuple[str, ...]:
    """Return in words what rules out all actions of some groups: rules, and rare combinations that are withheld."""
    withheld = [WITHHOLDS] if any(group.domain.withheld for group in groups) else []
    return (*by_kind([rule.origin for rule in rules]), *withheld) or (say("values"),)


def by_kind(origins: Sequence[Origin]) -> tuple[str, ...]:
    """Return constraints in words, many of a kind such as ``5 features of constraints.immutable (a, b, c, 2 more)``."""
    words: list[str] = []
    for section in dict.fromkeys(origin.section for origin in origins):
        kind = list(dict.fromkeys(origin for origin in origins if origin.section == section))
        if len(kind) <= FEW:
            words.extend(origin.path for origin in kind)
        else:
            features = all(origin.position is None and origin.key != "robust_to" for origin in kind)
            places, more = [origin.place for origin in kind], len(kind) - SHOWN
            shown = (*places[:SHOWN], say("more", count=more)) if more > 1 else tuple(places)
            phrase = "features_of_kind" if features else "of_kind"
            words.append(say(phrase, count=len(kind), section=section, places=shown))
    return tuple(words)
