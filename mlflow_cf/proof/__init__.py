"""Verification and certificates: from the candidates of a search to the answers of a reply.

`pipeline` leads the way. `verify` asks the logged model and every constraint about candidates and puts redundant
changes back; `judged_alone` asks about each answer by itself; `select` chooses among them. `certify` proves that
nothing is nearer, with the engine or, in `by_program`, with a mixed-integer program; `complete` looks for answers that
are missing. All of these are inquiries: generators that yield rows and are sent what the judge says about them;
`inquiry` runs many at once.
"""
