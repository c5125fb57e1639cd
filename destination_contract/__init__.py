"""What every destination promises, as tests that its author runs: docs/how-to/write-a-destination.md."""

import pytest

# Before they are imported, so that a failed assertion shows what it compared.
pytest.register_assert_rewrite(
    *(f"{__name__}.{part}" for part in ("alterations", "changes", "copies", "every_type", "odd_names", "progress"))
)
