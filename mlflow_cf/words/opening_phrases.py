"""The phrases of what our flavors do not open: parts of models, by what their libraries call them."""

from __future__ import annotations

from typing import Final

from mlflow_cf.words.phrases import Phrases

OPENING_PHRASES: Final[Phrases] = {
    "mixed_activations": {
        "en": "a network with piecewise linear activations beside curved ones",
        "de": "ein Netz mit stückweise linearen Aktivierungen neben gekrümmten",
    },
    "layer": {
        "en": "the layer {kind} of a network (one chain of linear layers, normalisations of batches, and "
        "activations such as ReLU, LeakyReLU, Tanh and Sigmoid can be opened)",
        "de": "die Schicht {kind} eines Netzes (eine einzige Kette linearer Schichten, Normalisierungen und "
        "Aktivierungen wie ReLU, LeakyReLU, Tanh und Sigmoid lässt sich öffnen)",
    },
    "no_chain": {
        "en": "a network that is not one chain of layers",
        "de": "ein Netz, das nicht eine einzige Kette von Schichten ist",
    },
    "no_calls": {
        "en": "a network that does not show its layers ({kind}; a plain module of PyTorch, or one that is logged with "
        "serialization_format='pt2', does)",
        "de": "ein Netz, das seine Schichten nicht zeigt ({kind}; ein einfaches Modul von PyTorch oder eines, das mit "
        "serialization_format='pt2' protokolliert wurde, zeigt sie)",
    },
    "precision": {
        "en": "a network that calculates in {dtype} (float32 and float64 can be opened)",
        "de": "ein Netz, das in {dtype} rechnet (float32 und float64 lassen sich öffnen)",
    },
    "unfilled_gaps": {
        "en": "a network on columns with missing values, for which it has no answer",
        "de": "ein Netz auf Spalten mit fehlenden Werten, für die es keine Antwort hat",
    },
    "independent_scores": {
        "en": "a network with independent probabilities of several labels",
        "de": "ein Netz mit unabhängigen Wahrscheinlichkeiten mehrerer Klassen",
    },
    "infinite_weights": {
        "en": "a network with weights that are not finite",
        "de": "ein Netz mit Gewichten, die nicht endlich sind",
    },
    "onnx_operator": {
        "en": "the operator {operator} as this ONNX graph uses it (scalers, imputers, encoders, LinearClassifier, "
        "TreeEnsemble and chains of Gemm, MatMul, BatchNormalization and activations can be opened)",
        "de": "der Operator {operator}, wie ihn dieser ONNX-Graph verwendet (Skalierer, Imputer, Encoder, "
        "LinearClassifier, TreeEnsemble und Ketten aus Gemm, MatMul, BatchNormalization und Aktivierungen lassen "
        "sich öffnen)",
    },
    "onnx_mode": {
        "en": "trees or linear models of ONNX with {mode}",
        "de": "Bäume oder lineare Modelle von ONNX mit {mode}",
    },
    "onnx_left_out": {
        "en": "trees of ONNX some of whose leaves leave classes out, which then are no label (leaves that name all can "
        "be opened)",
        "de": "Bäume von ONNX, von denen manche Blätter Klassen auslassen, die dann nicht Label werden (Blätter, die "
        "alle nennen, lassen sich öffnen)",
    },
    "onnx_two_votes": {
        "en": "trees of ONNX for two classes, whose label onnxruntime does not take from the larger score",
        "de": "Bäume von ONNX für zwei Klassen, deren Label onnxruntime nicht dem größeren Score entnimmt",
    },
    "onnx_mixed": {
        "en": "{operator} of ONNX behind layers, which mix columns",
        "de": "{operator} von ONNX hinter Schichten, die Spalten mischen",
    },
    "onnx_no_trees": {
        "en": "a TreeEnsemble of ONNX whose nodes form no trees",
        "de": "ein TreeEnsemble von ONNX, dessen Knoten keine Bäume bilden",
    },
    "onnx_no_scores": {
        "en": "an ONNX graph whose output is no sum of a model",
        "de": "ein ONNX-Graph, dessen Ausgabe keine Summe eines Modells ist",
    },
    "onnx_half": {
        "en": "an ONNX graph of float16 numbers, which round too much (one of float32 can be opened)",
        "de": "ein ONNX-Graph mit float16-Zahlen, die zu stark runden (einer mit float32 lässt sich öffnen)",
    },
    "onnx_size": {
        "en": "an ONNX graph of {size} MiB, of which no more than {most} MiB are read",
        "de": "ein ONNX-Graph von {size} MiB, von dem höchstens {most} MiB gelesen werden",
    },
    "linear_trees": {
        "en": "LightGBM's linear trees",
        "de": "lineare Bäume von LightGBM",
    },
    "objective_of": {
        "en": "{library}'s objective {objective}",
        "de": "die Zielfunktion {objective} von {library}",
    },
    "own_objective": {
        "en": "LightGBM with an own objective",
        "de": "LightGBM mit eigener Zielfunktion",
    },
    "some_zeros": {
        "en": "LightGBM with zeros that are missing values in some splits only",
        "de": "LightGBM mit Nullen, die nur in manchen Tests für fehlende Werte stehen",
    },
    "booster": {
        "en": "XGBoost's booster {name}",
        "de": "der Booster {name} von XGBoost",
    },
    "several_labels": {
        "en": "OneVsRestClassifier of several labels",
        "de": "OneVsRestClassifier mit mehreren Labels zugleich",
    },
    "divided_shares": {
        "en": "OneVsRestClassifier of shares, which it divides by their sum",
        "de": "OneVsRestClassifier von Anteilen, die er durch ihre Summe teilt",
    },
    "counted_labels": {
        "en": "VotingClassifier that counts labels",
        "de": "VotingClassifier, der Stimmen zählt",
    },
    "scores_no_sums": {
        "en": "{kind} of models whose scores are not sums",
        "de": "{kind} von Modellen, deren Scores keine Summen sind",
    },
    "calibrated_by": {
        "en": "CalibratedClassifierCV by {method}",
        "de": "CalibratedClassifierCV mittels {method}",
    },
    "some_classes": {
        "en": "{kind} of some of the classes",
        "de": "{kind} für einen Teil der Klassen",
    },
    "other_than_trees": {
        "en": "AdaBoostClassifier of others than single trees",
        "de": "AdaBoostClassifier von anderem als einzelnen Bäumen",
    },
    "median_of_others": {
        "en": "AdaBoostRegressor of others than single trees",
        "de": "AdaBoostRegressor von anderem als einzelnen Bäumen",
    },
    "target_by": {
        "en": "TransformedTargetRegressor by {kind}, which is not known to keep the order of values",
        "de": "TransformedTargetRegressor mit {kind}, das die Reihenfolge der Werte ändern könnte",
    },
    "target_by_function": {
        "en": "TransformedTargetRegressor with an inverse function that is not known to rise (numpy's exp, expm1, "
        "exp2, cbrt, sinh, log and log1p are, and the scalers)",
        "de": "TransformedTargetRegressor mit einer Umkehrfunktion, von der nicht bekannt ist, dass sie steigt (exp, "
        "expm1, exp2, cbrt, sinh, log und log1p von numpy sind es, auch die Skalierer)",
    },
    "stacked_under": {
        "en": "a stacked {kind}: of final estimators, linear ones alone can be opened",
        "de": "{kind} über anderen Modellen: von letzten Schätzern lassen sich nur lineare öffnen",
    },
    "stacked_labels": {
        "en": "the labels of {kind} that are stacked",
        "de": "die Labels von {kind}, auf denen ein anderes Modell steht",
    },
    "estimator": {
        "en": "the estimator {kind}",
        "de": "der Schätzer {kind}",
    },
    "missing_number": {
        "en": "XGBoost with missing={missing:g}",
        "de": "XGBoost mit missing={missing:g}",
    },
    "huber": {
        "en": "SGDClassifier with modified_huber loss",
        "de": "SGDClassifier mit der Verlustfunktion modified_huber",
    },
    "mixed_columns": {
        "en": "{kind} behind {before}, which mixes columns",
        "de": "{kind} hinter {before}, das Spalten mischt",
    },
    "curved_columns": {
        "en": "{kind} behind powers or splines of a number",
        "de": "{kind} hinter Potenzen oder Splines einer Zahl",
    },
    "products": {
        "en": "{kind} that multiplies several features",
        "de": "{kind}, das mehrere Merkmale multipliziert",
    },
    "on_date": {
        "en": "{kind} on the date {feature}",
        "de": "{kind} auf dem Datum {feature}",
    },
    "infinite": {
        "en": "{kind} with numbers that are not finite",
        "de": "{kind} mit Zahlen, die nicht endlich sind",
    },
    "starts_from": {
        "en": "GradientBoosting that starts from {kind}",
        "de": "GradientBoosting mit {kind} als Anfang",
    },
    "histogram_loss": {
        "en": "HistGradientBoostingRegressor with {loss} loss",
        "de": "HistGradientBoostingRegressor mit der Verlustfunktion {loss}",
    },
    "weighted_columns": {
        "en": "a ColumnTransformer with weights",
        "de": "ein ColumnTransformer mit Gewichten",
    },
    "columns_of": {
        "en": "the columns of {name}",
        "de": "die Spalten von {name}",
    },
    "imputer_of": {
        "en": "a SimpleImputer of {value}",
        "de": "ein SimpleImputer für {value}",
    },
    "imputer_with": {
        "en": "a SimpleImputer that fills numbers with {value}",
        "de": "ein SimpleImputer, der Zahlen durch {value} ersetzt",
    },
    "on_levels": {
        "en": "{kind} on the levels of, which no step turns into numbers",
        "de": "{kind} auf Ausprägungen, die kein Schritt in Zahlen verwandelt",
    },
    "on_levels_of": {
        "en": "{kind} on the levels of {feature}, which no step turns into numbers",
        "de": "{kind} auf den Ausprägungen von {feature}, die kein Schritt in Zahlen verwandelt",
    },
    "step": {
        "en": "the step {kind}",
        "de": "der Schritt {kind}",
    },
    "function_step": {
        "en": "the step {kind}, whose function nobody can look into (a step such as StandardScaler, "
        "MinMaxScaler, KBinsDiscretizer or OneHotEncoder can be opened, and so can a model "
        "that is given what the function returns)",
        "de": "der Schritt {kind}, in dessen Funktion niemand hineinsehen kann (Schritte wie "
        "StandardScaler, MinMaxScaler, KBinsDiscretizer oder OneHotEncoder lassen sich "
        "öffnen, auch ein Modell, das erhält, was die Funktion zurückgibt)",
    },
}
