"""The target for which programs are compiled in this process."""

from tapegrad.backends.cpu.target import Cpu
from tapegrad.backends.target import Machine

HOST: Machine = Cpu()
