"""Save a small explained model with our wheel, then ask it in a fresh environment that uv makes for it.

No index has this very version: uv finds it because the model brings the wheel along.
"""

import json
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import mlflow_cf


def main(folder: Path, wheel: str) -> str | None:
    """Return what is wrong, or None."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"income": rng.integers(20, 90, 400) * 1000.0, "debt": rng.integers(0, 40, 400) * 1000.0})
    model = LogisticRegression().fit(rows / 1000, rows["income"] > rows["debt"] + 30_000)
    mlflow_cf.save_model(model, folder, rows / 1000, target=True, pip_requirements=[wheel])
    refused = (rows / 1000)[~model.predict(rows / 1000)].head(2)

    answers = folder.parent / "answers.json"
    mlflow.models.predict(model_uri=str(folder), input_data=refused, env_manager="uv", output_path=str(answers))

    predictions = json.loads(answers.read_text())["predictions"]
    found = [answer["status"] for answer in predictions]
    print(json.dumps(predictions[0], indent=2))
    return None if found == ["found", "found"] else f"expected two explained rows, got {found}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
