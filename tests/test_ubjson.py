"""Universal Binary JSON, byte by byte."""

import numpy as np
import pytest

from mlflow_cf_flavors.ubjson import read_ubjson


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Z", None),
        (b"T", True),
        (b"F", False),
        (b"i\xff", -1),
        (b"U\xff", 255),
        (b"I\x01\x00", 256),
        (b"l\xff\xff\xff\xfe", -2),
        (b"L\x00\x00\x00\x01\x00\x00\x00\x00", 2**32),
        (b"d\x3f\x80\x00\x00", 1.0),
        (b"D\x3f\xf0\x00\x00\x00\x00\x00\x00", 1.0),
        (b"SU\x03abc", "abc"),
        (b"{}", {}),
        (b"{U\x01aTU\x01bSi\x00}", {"a": True, "b": ""}),
        (b"[]", []),
        (b"[TF[Z]]", [True, False, [None]]),
        (b"[#U\x02TF", [True, False]),
        (b"[#U\x00", []),
    ],
)
def test_values(data, value):
    assert read_ubjson(data) == value


def test_arrays_of_one_type_are_numpy_arrays():
    found = read_ubjson(b"{U\x01a[$l#L" + (3).to_bytes(8, "big") + np.array([1, -2, 3], ">i4").tobytes() + b"}")
    assert found["a"].tolist() == [1, -2, 3]
    assert found["a"].dtype == np.int32
    assert read_ubjson(b"[$d#U\x00").tolist() == []


def test_other_types_are_refused():
    with pytest.raises(ValueError, match="unknown type 'C'"):
        read_ubjson(b"Ca")
