"""GraVAC: adaptive gradient compression for distributed training.

One line in a script that uses DistributedDataParallel:

    ddp.register_comm_hook(gravac.GravacState(optimizer=optimizer), gravac.gravac_hook)

Without DDP, `gravac.Aggregator(model)` between backward() and step(), or `gravac.Optimizer(optimizer, model)`.
"""

from ._engine import Error
from ._session import report
from .aggregator import Aggregator, Optimizer
from .ddp import GravacState, gravac_hook

__version__ = "0.1.0"
__all__ = ["Aggregator", "Error", "GravacState", "Optimizer", "gravac_hook", "report"]
