"""A cluster that was killed at any moment does not keep the next one from starting."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from delayed_topics_devcluster import namespace
from delayed_topics_devcluster.namespace import Namespace
from delayed_topics_devcluster.processes import Process
from delayed_topics_devcluster.waiting import wait_until

pytestmark = pytest.mark.cluster  # it needs all rights of root

HOST, NODE = "10.213.255.1", "10.213.255.2"
FILL_A_SOCKET = f"""
import socket, time
filled = socket.create_connection(("{HOST}", 9))
filled.setblocking(False)
try:
    while True:
        filled.send(bytes(65536))
except BlockingIOError:
    print("full", flush=True)
time.sleep(600)
"""


def test_the_link_goes_at_once_though_a_killed_process_still_had_something_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = "delayed-topics2"  # beside the real one
    monkeypatch.setattr(namespace, "HOST_DEVICE", device)
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        target = f"--target={holder.pid}"
        wait_until(
            lambda: Path(f"/proc/{holder.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink(),
            what="the holder is in its own network namespace",
        )
        sh(f"ip link add {device} type veth peer name eth0 netns {holder.pid}")
        sh(f"ip address add {HOST}/30 dev {device}; ip link set {device} up")
        sh(f"nsenter {target} --net sh -ec 'ip address add {NODE}/30 dev eth0; ip link set eth0 up'")
        with socket.create_server((HOST, 9)) as server:
            sender = subprocess.Popen(
                ["nsenter", target, "--net", sys.executable, "-c", FILL_A_SOCKET], stdout=subprocess.PIPE, text=True
            )
            try:
                accepted, _ = server.accept()  # nothing reads from it, so that the sender's socket fills up
                assert sender.stdout is not None
                assert sender.stdout.readline() == "full\n"
            finally:
                sender.kill()
                sender.communicate()
            ended = Process.of(holder.pid)
            with accepted:
                ended.kill()
                Namespace.remove_link()
                assert not Path(f"/sys/class/net/{device}").exists()
        Namespace.remove_link()  # a missing link is not an error
    finally:
        holder.kill()
        holder.wait()
        subprocess.run(["ip", "link", "delete", device], stderr=subprocess.DEVNULL, check=False)


def sh(script: str) -> None:
    subprocess.run(["sh", "-ec", script], check=True)
