"""Finds the GPU of this process without an array library."""
import ctypes
import functools
import glob
import os


def _hidden():
    """True if CUDA_VISIBLE_DEVICES hides all GPUs: it is empty, or its first entry is not a device."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    return said is not None and said.split(",")[0].strip() in ("", "-1", "NoDevFiles")


@functools.lru_cache(maxsize=None)
def _driver_has_one(nodes):
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    if nodes:
        return True
    count = ctypes.c_int(0)  # without device nodes, as under WSL, only the driver knows
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def has_gpu():
    """True if there is an NVIDIA GPU that CUDA_VISIBLE_DEVICES does not hide."""
    return not _hidden() and _driver_has_one(bool(glob.glob("/dev/nvidia[0-9]*")))
