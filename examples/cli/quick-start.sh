#!/bin/sh
# The official command line, `iggy` (crate iggy-cli 0.14.0), unchanged, against a running cluster:
# a stream, a topic, messages there and back, an offset, a user, and everything deleted again.
#
#   biplane dev                                  # in another terminal
#   cargo install iggy-cli --version 0.14.0      # or name it: IGGY=/path/to/iggy
#   examples/cli/quick-start.sh [ADDRESS]        # any node; 127.0.0.1:8090 where none is said
#
# It ends with status 0 and the line `the quick start is done`, or at the first command that fails.

set -eu

address="${1:-127.0.0.1:8090}"
iggy="${IGGY:-iggy}"
stream="quick-start-$$"

run() {
    echo "\$ iggy $*"
    "$iggy" --tcp-server-address "$address" --username iggy --password iggy "$@"
}

# What a command prints must hold this text.
expect() {
    wanted="$1"
    shift
    said="$(run "$@" 2>&1)"
    echo "$said"
    case "$said" in
        *"$wanted"*) ;;
        *) echo "quick-start: \"$wanted\" is missing" >&2; exit 1 ;;
    esac
}

run ping
expect leader cluster metadata
run stream create "$stream"
run topic create "$stream" orders 3 none 1day
expect orders topic list "$stream"
run message send --partition-id 0 "$stream" orders "first order" "second order"
expect "second order" message poll --offset 0 --message-count 10 "$stream" orders 0
run consumer-offset set 1 "$stream" orders 0 1
expect 1 consumer-offset get 1 "$stream" orders 0
run consumer-group create "$stream" orders readers
expect readers consumer-group list "$stream" orders
run user create "user-$$" "a password"
run user delete "user-$$"
run stats
run consumer-group delete "$stream" orders readers
run topic delete "$stream" orders
run stream delete "$stream"
echo "the quick start is done"
