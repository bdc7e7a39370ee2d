"""Search among sets of changed features: what is nearest of trees where few changes suffice."""
