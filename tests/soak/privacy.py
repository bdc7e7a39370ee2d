"""Send thousands of fuzzed requests to a model with canaries in its background, then attack it; print figures.

    python tests/soak/privacy.py [number]

It ends with an AssertionError where anything names a value of the background, or an attack that is refused succeeds.
"""

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import membership
from click import echo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from privacy_world import ANY, ASKED, check, served


def main(requests: int) -> None:
    """Send so many requests of every kind, then attack."""
    statuses, started = Counter(), time.perf_counter()

    @settings(max_examples=requests, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(row=st.integers(0, len(ASKED) - 1), options=ANY)
    def send(row, options):
        statuses[check(served(), row, options)] += 1

    send()
    echo(
        f"{sum(statuses.values()):,} requests in {time.perf_counter() - started:.0f} s, nothing told: {dict(statuses)}"
    )
    for groups, values in ((True, "observed"), (False, "observed"), (False, "continuous")):
        found = membership.advantage(membership.serving(values=values), groups=groups)
        how = "as one group" if groups else "value by value"
        echo(f"membership by rows pinned {how}, values={values!r}: advantage {found:.2f}")
        assert found <= 0.05 or (not groups and values == "observed")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
