#!/bin/sh
exec devcluster java "$@"
