"""What compressed collectives do to a whole model."""

from arlab._model_time import ModelTime, time

__all__ = ["ModelTime", "time"]
