"""The log of cotune under PyTorch.

Warnings are shown on rank 0 of each process group; `TORCH_LOGS="+cotune.torch"` shows everything, on all ranks, as it does for
PyTorch's own modules.
"""

import logging

log = logging.getLogger("cotune.torch")
