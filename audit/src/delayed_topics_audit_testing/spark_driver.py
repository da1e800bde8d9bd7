"""`python -m … JARS SETTINGS MASTER`: starts Spark as the Job of an audit does, by the audit's own code, until a line comes in on stdin.

SETTINGS is a JSON file.
"""

import json
import sys
from pathlib import Path

from delayed_topics_audit import session

jars, settings, master = sys.argv[1:]
session.start(master=master, jars=Path(jars), memory="512m", settings=json.loads(Path(settings).read_text()))
sys.stdin.readline()
session.stop()
