"""The Spark session of an audit that runs in one pod."""

import uuid

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_task_that_fails_is_tried_again_in_one_pod_as_on_executors(spark: SparkSession) -> None:
    """Spark's own `local[2]` would end the audit with the first failed task. This one fails unless it was tried before."""
    tried = f"reflect('java.lang.System', 'setProperty', '{uuid.uuid4()}', 'tried')"
    assert spark.range(1, numPartitions=1).selectExpr(f"assert_true({tried} = 'tried')").collect() == [(None,)]
