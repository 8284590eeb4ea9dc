import pyarrow
from pyspark.sql.types import DataType

def to_arrow_schema(schema: DataType, timezone: str | None = None) -> pyarrow.Schema: ...
