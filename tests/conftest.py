"""Settings of all tests."""

import os

# Tests run two at a time on two cores: one thread each, also in the commands they start. Set before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
