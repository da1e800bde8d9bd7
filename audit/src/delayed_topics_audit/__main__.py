from delayed_topics_audit.cli import main

main()
