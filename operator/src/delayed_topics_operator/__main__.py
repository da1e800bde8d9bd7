from delayed_topics_operator.cli import main

main(prog_name="delayed-topics-operator")
