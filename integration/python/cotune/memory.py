"""Memory of a GPU that all ranks reach."""

from cotune.buffers import Operand
from cotune.constants import DType


class Memory:
    """What Group.allocate gives: bytes on the group's GPU, freed by Group.free or with the group.

    `torch.as_tensor(memory, device="cuda")` is a tensor of uint8 over it, which Tensor.view makes
    one of another type. The tensor is of no use once the memory is freed.

    Attributes:
      address: of the first byte, a CUDA address.
      size_bytes: how many bytes it has.
      device: the ordinal of the GPU.
    """

    def __init__(self, address: int, size_bytes: int, device: int):
        self.address = address
        self.size_bytes = size_bytes
        self.device = device

    @property
    def __cuda_array_interface__(self) -> dict:
        return {
            "version": 3,
            "shape": (self.size_bytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "strides": None,
            "stream": None,
        }

    def operand(self, dtype: DType, sizes: tuple[int, ...], offset_bytes: int = 0) -> Operand:
        """An operand of calls that begins offset_bytes behind the beginning."""
        made = Operand(self.address + offset_bytes, dtype, sizes, self.device, owner=self)
        if offset_bytes < 0 or offset_bytes + made.count * dtype.size_bytes > self.size_bytes:
            raise ValueError(
                f"{made.count} elements of {dtype.name.lower()} do not fit into {self.size_bytes} "
                f"bytes behind the first {offset_bytes}"
            )
        return made
