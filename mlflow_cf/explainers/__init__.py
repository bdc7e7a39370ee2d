"""The explainers: one file and one class per method, and the table of their names."""

from mlflow_cf.explainers.baselines.certifai import CERTIFAI
from mlflow_cf.explainers.baselines.face import FACE
from mlflow_cf.explainers.baselines.growing_spheres import GrowingSpheres
from mlflow_cf.explainers.baselines.nearest_row import NearestRow
from mlflow_cf.explainers.baselines.random_search import RandomSearch
from mlflow_cf.explainers.baselines.simcf import SimCF
from mlflow_cf.explainers.ceocl import CEOCL
from mlflow_cf.explainers.cscf import CSCF, SCF
from mlflow_cf.explainers.exact import Exact
from mlflow_cf.explainers.explainer import AnyExplainer, Candidates, Explainer, Facts, Learned, Learner, Search, learns
from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.explainers.mdpso import MDPSO
from mlflow_cf.explainers.ufce import UFCE
from mlflow_cf.plans.plan import PlannedStep

EXPLAINERS: dict[str, type[AnyExplainer]] = {
    GeCo.name: GeCo,
    Exact.name: Exact,
    CEOCL.name: CEOCL,
    MDPSO.name: MDPSO,
    UFCE.name: UFCE,
    CSCF.name: CSCF,
    SCF.name: SCF,
    NearestRow.name: NearestRow,
    RandomSearch.name: RandomSearch,
    SimCF.name: SimCF,
    CERTIFAI.name: CERTIFAI,
    GrowingSpheres.name: GrowingSpheres,
    FACE.name: FACE,
}

__all__ = [
    "CEOCL",
    "CERTIFAI",
    "CSCF",
    "EXPLAINERS",
    "FACE",
    "MDPSO",
    "SCF",
    "UFCE",
    "AnyExplainer",
    "Candidates",
    "Exact",
    "Explainer",
    "Facts",
    "GeCo",
    "GrowingSpheres",
    "Learned",
    "Learner",
    "NearestRow",
    "PlannedStep",
    "RandomSearch",
    "Search",
    "SimCF",
    "learns",
]
