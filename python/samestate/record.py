"""What was judged, for the record: file and hash of a function, versions of packages, switches that affect numerics."""
import hashlib
import inspect
import os
import sys


def _where(function):
    """(file, line) of the function that runs; (None, 0) if it has no source."""
    try:
        function = inspect.unwrap(function)
        code = getattr(function, "__code__", None) or getattr(getattr(function, "__call__", None), "__code__", None)
        if code is not None:
            return code.co_filename, code.co_firstlineno
        return inspect.getsourcefile(function), 0
    except (TypeError, OSError, ValueError):
        return None, 0


def _short(path):
    """The path relative to the folder that it was imported from, or to the working folder."""
    for root in [os.getcwd()] + sorted((p for p in sys.path if p), key=len, reverse=True):
        root = os.path.abspath(root) + os.sep
        if os.path.abspath(path).startswith(root):
            return os.path.abspath(path)[len(root):]
    return os.path.basename(path)


def _sha256(path):
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return "(not readable)"


PACKAGES = {  # module: distribution; recorded if the module was imported
    "numpy": "numpy", "torch": "torch", "triton": "triton", "jax": "jax", "jaxlib": "jaxlib", "mlx": "mlx",
    "mlx_lm": "mlx-lm", "transformers": "transformers", "fla": "flash-linear-attention", "libggml": "libggml-python",
    "flashinfer": "flashinfer-python", "flash_qla": "flash-qla", "vllm": "vllm", "tilelang": "tilelang",
    "sglang": "sglang", "mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d",
    "cutlass": "nvidia-cutlass-dsl", "ml_dtypes": "ml-dtypes", "cupy": "cupy",
}
_SWITCHES = ("FLA_", "TRITON_", "CUBLAS_", "XLA_FLAGS", "JAX_", "MLX_", "NVIDIA_TF32_OVERRIDE",
             "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "MKL_")


def about():
    """The record of this process: versions of imported packages, and switches that affect numerics, all as strings."""
    from importlib import metadata

    from . import __version__, float_environment, interpreter, tuning

    out = {"samestate.python": __version__, "python": sys.version.split()[0]}
    if tuning.setting():
        out["autotune"] = tuning.setting()
    if interpreter.chosen():
        out["interpreter"] = interpreter.chosen()
    if float_environment.about():
        out["float_environment"] = float_environment.about()
    for module, distribution in PACKAGES.items():
        if module in sys.modules:
            try:
                out[module] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                out[module] = str(getattr(sys.modules[module], "__version__", "(unknown)"))
    for key in sorted(os.environ):
        if key.startswith(_SWITCHES) and not key.endswith(("_DIR", "_PATH", "_HOME")):  # paths do not affect numbers
            out[key] = os.environ[key][:200]
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "backends"):
        out["torch.allow_tf32.matmul"] = str(torch.backends.cuda.matmul.allow_tf32)
        out["torch.allow_tf32.cudnn"] = str(torch.backends.cudnn.allow_tf32)
        out["torch.float32_matmul_precision"] = torch.get_float32_matmul_precision()
        if torch.cuda.is_available():
            out["device"] = torch.cuda.get_device_name()
    return out
