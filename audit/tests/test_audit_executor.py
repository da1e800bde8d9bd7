"""What a pod that Spark makes runs, by the environment that Spark gives it."""

from delayed_topics_audit.executor import command


def test_an_executor_is_started_as_spark_says_with_its_options_in_order() -> None:
    said = {
        "DRIVER_URL": "spark://d",
        "APPLICATION_ID": "spark-1",
        "RESOURCE_PROFILE_ID": "0",
        "CLASSPATH": "/opt/jars/*",
    }
    own = {"ID": "7", "CORES": "2", "POD_IP": "10.0.0.9", "POD_NAME": "e-7", "MEMORY": "512m"}
    options = {f"SPARK_JAVA_OPT_{i}": f"-Dspark.option={i}" for i in (10, 2)}
    environment = {f"SPARK_{n}": v for n, v in said.items()} | {f"SPARK_EXECUTOR_{n}": v for n, v in own.items()}
    java = command({**environment, **options})
    assert java[:4] == ["java", "-Dspark.option=2", "-Dspark.option=10", "-Xmx512m"]
    assert java[5].startswith("/opt/jars/*:")
    assert java[6].endswith("KubernetesExecutorBackend")
    assert dict(zip(java[7::2], java[8::2], strict=True)) == {
        "--driver-url": "spark://d",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "e-7",
    }
