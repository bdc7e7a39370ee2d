"""The black box: may this order be paid by invoice? Three rules, then two models that were trained by different teams.

MLflow stores this file as it is (a model from code) and loads it by running it. mlflow-cf does not look inside.
"""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.pyfunc import PythonModel, PythonModelContext


class Checkout(PythonModel):
    """Rows of orders -> how likely each is to be paid; what a rule forbids is 0."""

    def load_context(self, context: PythonModelContext) -> None:
        """Load both models, which lie in the artifact."""
        self.models = [mlflow.sklearn.load_model(context.artifacts[name]) for name in ("forest", "neighbours")]

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return (n,) shares from 0 to 1; above 0.5 the order may be paid by invoice."""
        del context, params
        shares = np.mean([model.predict_proba(model_input)[:, 1] for model in self.models], axis=0)
        new = model_input["months_known"] < 3
        elsewhere = model_input["delivery"] != "home"
        forbidden = (model_input["open_reminders"] > 1) | (new & (model_input["order_value"] > 300))
        forbidden |= elsewhere & (model_input["order_value"] > 600)
        return np.where(forbidden, 0.0, shares)


mlflow.models.set_model(Checkout())
