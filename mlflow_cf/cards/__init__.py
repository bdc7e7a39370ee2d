"""Explained rows as cards: HTML for notebooks and reports, with each change drawn on what the background holds.

A notebook shows one `page` that stands by itself. A report with many cards writes `style()` and `definitions`
once, inside an element of the class ``mlflow-cf``, and a `card` per row.
"""

from mlflow_cf.cards.pictures import Pictures as Pictures
from mlflow_cf.cards.render import facts as facts
from mlflow_cf.cards.render import items as items
from mlflow_cf.cards.render import page as page
from mlflow_cf.cards.render import style as style
from mlflow_cf.cards.render import table as table
from mlflow_cf.cards.render import told as told
from mlflow_cf.cards.row import answers_of as answers_of
from mlflow_cf.cards.row import card as card
from mlflow_cf.cards.row import definitions as definitions
from mlflow_cf.cards.rows import answers as answers
