"""Build it yourself: eight exercises, each a class of a few lines that runs on the real model.

import kvlab

kvlab.build.check(2, Pool)          right, or the smallest case that goes wrong, in one sentence
kvlab.build.check(2, Pool).player() yours beside what should be, at the step where it goes wrong
kvlab.build.hint(2, 1)              a hint, from 1 (where to look) to 3 (nearly the answer)
kvlab.build.engine(Tables, Pool)    an engine of your pieces; what you do not bring is given
"""

from kvlab.lab.build.check import Outcome, check, engine, hint
from kvlab.lab.build.engine import Frame as Engine
from kvlab.lab.build.parts import Request

__all__ = ["Engine", "Outcome", "Request", "check", "engine", "hint"]
