#!/bin/sh
exec devcluster java org.apache.kafka.tools.ConsoleProducer "$@"
