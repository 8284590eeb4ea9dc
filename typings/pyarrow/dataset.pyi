from collections.abc import Sequence
from typing import Any

from pyarrow import Table

class Dataset:
    def to_table(self, columns: Sequence[str] | None = None) -> Table: ...

def dataset(source: Any, *, format: str | None = None, partitioning: str | None = None) -> Dataset: ...
