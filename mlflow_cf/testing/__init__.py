"""The tests that every explainer and every kind of model must pass, ours and yours, for pytest.

```python
from mlflow_cf.testing import ExplainerSuite


class TestMine(ExplainerSuite):
    def explainer(self):
        return Mine()
```

`ModelSuite` takes a `Kind` in the same way.
"""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("mlflow_cf.testing needs pytest: pip install pytest", name="pytest") from error

# so that a failing assert shows its values; it must come before these modules are imported
for _checks in ("answers", "conduct", "opened"):
    pytest.register_assert_rewrite(f"mlflow_cf.testing.{_checks}")

from mlflow_cf.testing.checker import Checker, Ruler  # noqa: E402
from mlflow_cf.testing.explainer_suite import ExplainerSuite  # noqa: E402
from mlflow_cf.testing.goals import GOALS, Goal  # noqa: E402
from mlflow_cf.testing.model_suite import ModelSuite  # noqa: E402
from mlflow_cf.testing.models import KINDS, Fitted, Kind  # noqa: E402
from mlflow_cf.testing.trial import FEW, SCENARIOS, Scenario  # noqa: E402

__all__ = [
    "FEW", "GOALS", "KINDS", "SCENARIOS", "Checker", "ExplainerSuite", "Fitted", "Goal", "Kind", "ModelSuite", "Ruler",
    "Scenario",
]  # fmt: skip
