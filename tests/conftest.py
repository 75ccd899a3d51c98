"""How property tests are run: the same examples each time, without a clock; `HYPOTHESIS_PROFILE=deep` looks further."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

CALM = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]

settings.register_profile("ci", deadline=None, max_examples=40, derandomize=True, suppress_health_check=CALM)
settings.register_profile("deep", deadline=None, max_examples=400, suppress_health_check=CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
