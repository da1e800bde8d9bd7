"""python -m delayed_topics_worker"""

from delayed_topics_worker.cli import main

if __name__ == "__main__":
    main(prog_name="delayed-topics-worker")
