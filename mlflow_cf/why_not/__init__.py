"""Why a row has no counterfactual, and what would help."""
