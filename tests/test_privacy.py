"""What requests see of the background: nothing in words, rows of it only where the owner allows it."""

from privacy_world import ANY, ASKED, CANARIES, TABLE, ask, check, fitted, leaks, served
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
import mlflow_cf
import pytest

ONE = ASKED.iloc[[0]]


@dear(1)
@given(row=st.integers(0, len(ASKED) - 1), options=ANY)
def test_nothing_said_to_a_request_names_a_value_of_the_background(row, options):
    check(served(), row, options)
