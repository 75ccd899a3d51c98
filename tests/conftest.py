"""How property tests are run: the same examples each time, without a clock or a search for the smallest one.

`HYPOTHESIS_PROFILE=deep` looks further.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

FAST = [Phase.explicit, Phase.reuse, Phase.generate]

settings.register_profile(
    "ci", deadline=None, max_examples=15, derandomize=True, suppress_health_check=CALM, phases=FAST
)
settings.register_profile("deep", deadline=None, max_examples=400, suppress_health_check=CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
