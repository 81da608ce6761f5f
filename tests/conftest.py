"""Settings of all tests."""

import os

import pytest

# Tests run two at a time on two cores: one thread each, also in the commands they start. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def library_folder(tmp_path, monkeypatch):
    """An empty folder where the C++ library is looked for, as after an installation without a compiler."""
    from burstmamba.kernels.cpu import library as cpu_library  # after the setting above

    monkeypatch.setattr(cpu_library, "FOLDER", tmp_path)
    cpu_library.library.cache_clear()
    yield tmp_path
    cpu_library.library.cache_clear()
