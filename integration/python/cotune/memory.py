"""Memory of a GPU that all ranks can read and write."""

from cotune.buffers import Operand
from cotune.constants import DType


class Memory:
    """Memory from Group.allocate: bytes on the group's GPU, which Group.free or the end of the group frees.

    `torch.as_tensor(memory, device="cuda")` is a tensor of uint8 in this memory, and Tensor.view
    gives it another type. The tensor must not be used after the memory is freed.

    Attributes:
      address: the CUDA address of the first byte.
      size_bytes: the number of bytes.
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
        """Returns an operand for calls that begins offset_bytes after the first byte.

        Raises ValueError if it does not fit into the memory.
        """
        made = Operand(self.address + offset_bytes, dtype, sizes, self.device, owner=self)
        if offset_bytes < 0 or offset_bytes + made.count * dtype.size_bytes > self.size_bytes:
            raise ValueError(
                f"{made.count} elements of {dtype.name.lower()} do not fit into {self.size_bytes} "
                f"bytes at the offset {offset_bytes}"
            )
        return made
