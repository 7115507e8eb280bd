#!/bin/sh
# Stand-in for a packaged Unreal game: a script that starts the game and waits for it.
if [ "$(id -u)" = 0 ]; then
    echo "Refusing to run with the root privileges."
    exit 1
fi
python "$(dirname "$0")/schola_game.py" "$@"
