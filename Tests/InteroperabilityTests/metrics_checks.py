"""The metrics, read by Prometheus' own programs. Each check has a fresh daemon."""

import asyncio
import http.client
import shutil
import socket
import subprocess

from daemon import LONG_NAME, expect
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PROMTOOL_SECONDS = 30


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a daemon's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def scrape(daemon, accept, target="/metrics"):
    connection = UnixConnection(daemon.socket)
    connection.request("GET", target, headers={"Accept": accept})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    expect(response.status == 200, f"the status is {response.status}: {body}")
    expect(response.getheader("Content-Type") == accept, f"the type is {response.getheader('Content-Type')}")
    return body


def promtool(text):
    """Returns the exit status and the findings: 3 means that only the style is found fault with."""
    program = shutil.which("promtool")
    expect(program, "no promtool; install the package prometheus")
    found = subprocess.run(
        [program, "check", "metrics"], input=text, capture_output=True, text=True, timeout=PROMTOOL_SECONDS)
    return found.returncode, (found.stdout + found.stderr).splitlines()


def samples(families):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples}


async def metrics_pass_promtool(daemon):
    """the text format passes promtool check metrics, which finds no fault with names, types and help texts"""
    status, findings = promtool(scrape(daemon, TEXT))
    expect(status == 0, f"promtool found: {findings}")


async def open_metrics_pass_promtool(daemon):
    """promtool reads OpenMetrics; it finds help texts at the names of families, which its own format does not have"""
    status, findings = promtool(scrape(daemon, OPEN_METRICS))
    others = [line for line in findings if not line.endswith("_total no help text")]
    expect(status in (0, 3) and not others, f"promtool found: {findings}")


async def strict_parsers_agree(daemon):
    """the strict parser reads OpenMetrics, and both formats have the same series"""
    await asyncio.sleep(0.3)  # no rendering is shared with the start
    text, strict = list(parse_text(scrape(daemon, TEXT))), list(parse_open_metrics(scrape(daemon, OPEN_METRICS)))
    expect(samples(text).keys() == samples(strict).keys(), "the formats have different series")
    types = {family.name: family.type for family in strict}
    expect(types["streamd_stream_received_events"] == "counter", f"types: {types}")
    expect(types["streamd_connections"] == "gauge", f"types: {types}")
    values = samples(strict)
    expect(values["streamd_stream_up", ("stream", LONG_NAME)] == 1, "the stream with a long name is not up")
    expect(values["streamd_connections", ("protocol", "http")] == 1, "HTTP connections other than this one are counted")
    expect(values["process_open_fds",] > 3, "no open descriptors")
    without = samples(parse_open_metrics(scrape(daemon, OPEN_METRICS, "/metrics?streams=0")))
    expect(without.keys() == {key for key in values if not key[0].startswith("streamd_stream_")}, "?streams=0")


CHECKS = [strict_parsers_agree]
PROMTOOL_CHECKS = [metrics_pass_promtool, open_metrics_pass_promtool]
