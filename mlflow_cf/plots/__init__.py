"""Figures of plans: in which order things are done, and what each does to the prediction where it stands.

They are `matplotlib.figure.Figure` objects, ready for ``mlflow.log_figure(figure, "plans/sequence_flow.png")``.
"""

from mlflow_cf.plots.effect import position_effect
from mlflow_cf.plots.flow import sequence_flow

__all__ = ["position_effect", "sequence_flow"]
