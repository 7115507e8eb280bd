"""An experiment for ado: how long two gains keep a pole on a cart upright, in a hundred starts."""

from __future__ import annotations

import math
import random

from ado.modules.actuators.custom_experiments import custom_experiment
from ado.schema.domain import PropertyDomain, VariableTypeEnum
from ado.schema.property import ConstitutiveProperty

GRAVITY = 9.8
CART = 1.0  # kg
POLE = 0.1  # kg
HALF_LENGTH = 0.5  # m
PUSH = 10.0  # N, at most
STEP = 0.002  # s
FALLEN = 0.21  # rad: twelve degrees
ENOUGH = 20.0  # s
STARTS = 100


def _gain(name: str) -> ConstitutiveProperty:
    domain = PropertyDomain(
        variableType=VariableTypeEnum.CONTINUOUS_VARIABLE_TYPE, domainRange=[0, 200]
    )
    return ConstitutiveProperty(identifier=name, propertyDomain=domain)


@custom_experiment(
    required_properties=[_gain("angle_gain"), _gain("speed_gain")],
    output_property_identifiers=["seconds_upright", "farthest"],
    metadata={"description": "A pole on a cart, pushed by two gains"},
)
def balance(angle_gain: float, speed_gain: float) -> dict[str, float]:
    """Return how long the pole stays upright, and how far the cart moves: means of all starts."""
    chance = random.Random(0)
    ended = [_play(angle_gain, speed_gain, chance.uniform(-0.15, 0.15)) for _ in range(STARTS)]
    seconds, farthest = (sum(values) / STARTS for values in zip(*ended, strict=True))
    print(f"gains {angle_gain:g} and {speed_gain:g}: {seconds:.1f} s upright", flush=True)
    return {"seconds_upright": seconds, "farthest": farthest}


def _play(angle_gain: float, speed_gain: float, angle: float) -> tuple[float, float]:
    """Simulate one start; return the seconds until the fall, and the farthest place."""
    seconds = place = speed = turning = farthest = 0.0
    while seconds < ENOUGH and abs(angle) < FALLEN:
        push = max(-PUSH, min(PUSH, angle_gain * angle + speed_gain * turning))
        sine = math.sin(angle)
        cosine = math.cos(angle)
        pulled = (push + POLE * HALF_LENGTH * turning**2 * sine) / (CART + POLE)
        leverage = HALF_LENGTH * (4 / 3 - POLE * cosine**2 / (CART + POLE))
        falling = (GRAVITY * sine - cosine * pulled) / leverage
        faster = pulled - POLE * HALF_LENGTH * falling * cosine / (CART + POLE)

        place += STEP * speed
        speed += STEP * faster
        angle += STEP * turning
        turning += STEP * falling
        seconds += STEP
        farthest = max(farthest, abs(place))

    return seconds, farthest
