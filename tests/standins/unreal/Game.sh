#!/bin/sh
# Stands where a packaged Unreal game is.
if [ "$(id -u)" = 0 ]; then
    echo "Refusing to run with the root privileges."
    exit 1
fi
echo "listening"
