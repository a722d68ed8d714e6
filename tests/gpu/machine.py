"""What this machine is: GPUs by the CUDA driver, without anything that is not in Python."""

import ctypes
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess


def _driver() -> ctypes.CDLL | None:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def gpus() -> list[str]:
    """Names of the GPUs that a process sees, in CUDA's order; empty without GPU or driver. Asked in a process of its
    own: who has asked once keeps a context of the driver."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, "\n".join(_names()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text.splitlines()


def _names() -> list[str]:
    driver = _driver()
    count = ctypes.c_int(0)
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    names = []
    for ordinal in range(count.value):
        device = ctypes.c_int(0)
        name = ctypes.create_string_buffer(128)
        driver.cuDeviceGet(ctypes.byref(device), ordinal)
        driver.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode())
    return names


def _first_line(path: str) -> str:
    try:
        return pathlib.Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def processor() -> str:
    """The name of the processor; "" where it is not known."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


# The packages that cotune opens at run time, and its peers.
PACKAGES = re.compile(r"torch|nvidia-(nccl|cuda-nvrtc|cuda-runtime|nvshmem)-?(cu\d+)?")


def packages() -> dict[str, str]:
    """Versions of those in this Python."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if PACKAGES.fullmatch(name):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def describe(cotune: pathlib.Path) -> dict:
    """For a report: machine, GPUs, driver, versions."""
    version = subprocess.run([cotune, "--version"], capture_output=True, text=True, check=False)
    return {
        "system": platform.platform(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "gpus": gpus(),
        "driver": _first_line("/proc/driver/nvidia/version"),
        "python": platform.python_version(),
        "packages": packages(),
        "cotune": version.stdout.strip(),
    }
