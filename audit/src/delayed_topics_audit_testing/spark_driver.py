"""`python -m … JARS SETTINGS MASTER`: Spark as the Job of an audit starts it, until a line comes in; with what the audit itself uses.

SETTINGS: a file of JSON.
"""

import json
import sys
from pathlib import Path

from delayed_topics_audit import session

jars, settings, master = sys.argv[1:]
session.start(master=master, jars=Path(jars), memory="512m", settings=json.loads(Path(settings).read_text()))
sys.stdin.readline()
session.stop()
