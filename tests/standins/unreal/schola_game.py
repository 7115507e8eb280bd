"""A small game that speaks Schola's protocol: tests/large/test_schola.py trains in it.

    schola_game.py -ScholaPort PORT        (other flags of an Unreal game are ignored)

One player on a line of eleven places sees its own place and that of a flag, and goes left, stays or
goes right. Its reward is 1 at the flag and -0.05 for any other step. The messages are those of the
installed package, `schola.generated`. Like Unreal's games, this one listens on 127.0.0.1.
"""

from __future__ import annotations

import random
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from schola.generated import Definitions_pb2 as definitions
from schola.generated import GymConnector_pb2 as messages
from schola.generated import GymConnector_pb2_grpc as services
from schola.generated import State_pb2 as states

PLACES = 11
LONGEST = 40
MOVES = 3


class Line:
    """The game: it answers the learner's calls, one at a time."""

    def __init__(self) -> None:
        self.chance = random.Random()
        self.steps = 0
        self.start()

    def start(self) -> None:
        """Put the player and the flag at two random places."""
        self.place, self.flag = self.chance.sample(range(PLACES), 2)
        self.moves = 0

    # ---- the calls of the protocol ----

    def StartGymConnector(self, request: Any, context: Any) -> Any:
        return messages.GymConnectorStartResponse()

    def RequestTrainingDefinition(self, request: Any, context: Any) -> Any:
        """Return the observations and actions of the only agent in the only environment."""
        answer = definitions.TrainingDefinition()
        agent = answer.environment_definitions.add().agent_definitions[0]
        agent.name = "walker"

        agent.obs_space.labels.append("line")
        seen = agent.obs_space.values.add().box_space
        for _ in range(2):
            seen.dimensions.add(low=0.0, high=1.0)

        agent.action_space.labels.append("move")
        agent.action_space.values.add().discrete_space.high.append(MOVES)
        return answer

    def RequestInitialTrainingState(self, request: Any, context: Any) -> Any:
        """Begin an episode, and return its first observation."""
        self.start()
        answer = states.InitialTrainingState()
        self.show(answer.environment_states[0].agent_states[0].observations)
        return answer

    def UpdateState(self, request: Any, context: Any) -> Any:
        """Do the agent's step; a reset, or the end of the connection, moves nothing."""
        answer = states.TrainingState()
        if request.status == messages.CLOSED:
            return answer

        update = request.updates[0]
        if update.WhichOneof("update_msg") == "reset":
            if update.reset.WhichOneof("optional_seed"):
                self.chance.seed(update.reset.seed)
            return answer

        action = update.step.updates[0].actions.values[0].discrete_point.values[0]
        self.step(action)
        agent = answer.environment_states.add().agent_states[0]
        self.show(agent.observations)
        at_the_flag = self.place == self.flag
        agent.reward = 1.0 if at_the_flag else -0.05

        if at_the_flag:
            agent.status = states.COMPLETED
        elif self.moves >= LONGEST:
            agent.status = states.TRUNCATED

        return answer

    # ---- the game itself ----

    def step(self, action: int) -> None:
        self.place = min(max(self.place + action - 1, 0), PLACES - 1)
        self.moves += 1
        self.steps += 1

    def show(self, observations: Any) -> None:
        last = PLACES - 1
        observations.values.add().box_point.values.extend([self.place / last, self.flag / last])


def main() -> None:
    """Serve until a SIGTERM or SIGINT."""
    port = sys.argv[sys.argv.index("-ScholaPort") + 1]
    server = grpc.server(ThreadPoolExecutor(1))
    services.add_GymServiceServicer_to_server(Line(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print(f"a game at port {port}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
