"""Counterfactuals by mixed-integer programs: variables, embedded structures, a file per family of rows, a solver."""
