"""Verification and certificates: from the candidates of a search to the answers of a reply.

`pipeline` leads the way. `verify` asks the logged model and every constraint about candidates, puts redundant changes
back, chooses among what was accepted, and asks about each answer by itself. `certify` proves that nothing is nearer,
with the engine or with a mixed-integer program; `complete` looks for answers that are missing; `by_cost` orders answers
as their explainer does and proves what they cost. All of these are inquiries: generators that yield rows and are sent
what the judge says about them; `pipeline` runs many at once. `given` verifies counterfactuals of others.
"""
