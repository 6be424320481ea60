"""One process per GPU with PyTorch: starting them, and the all-reduces that PyTorch has."""

import os
import sys

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def start_ranks(count):
    """Returns in every process of a torchrun-like launch. Without one, starts this script on `count` GPUs."""
    if "WORLD_SIZE" in os.environ:
        return
    import torch

    count = count or torch.cuda.device_count()
    if count < 2:
        sys.exit(f"error: {torch.cuda.device_count()} GPUs are visible: an all-reduce needs at least 2 ranks")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    os.execv(sys.executable, [*launch, *sys.argv])


class Ranks:
    """This rank, and PyTorch's group of all ranks."""

    def __init__(self):
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        local_rank = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
        self.device = torch.device("cuda", local_rank % torch.cuda.device_count())
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl", device_id=self.device)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._quick_reduce = None

    def gather(self, value):
        """The value of every rank, in rank order."""
        values = [None] * self.size
        self.dist.all_gather_object(values, value)
        return values

    def barrier(self):
        self.torch.cuda.synchronize()
        self.dist.barrier()
        self.torch.cuda.synchronize()

    def close(self):
        self.dist.destroy_process_group()

    def dtype(self, name):
        return getattr(self.torch, DTYPES[name])

    def platform(self):
        return "rocm" if self.torch.version.hip else "cuda"

    def library_versions(self):
        torch = self.torch
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        runtime = f"ROCm {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
        return f"PyTorch {torch.__version__}, {runtime}, NCCL {nccl}"

    def symmetric_buffer(self, dtype, elements):
        """Memory that all ranks can reach, for torch.ops.symm_mem; the same size on every rank."""
        import torch.distributed._symmetric_memory as symm_mem

        buffer = symm_mem.empty(elements, dtype=dtype, device=self.device)
        symm_mem.rendezvous(buffer, self.dist.group.WORLD)
        return buffer

    # ---- the all-reduces of PyTorch. Symmetric memory: the tensor lies in a symmetric_buffer().

    def nccl(self, tensor):
        """In place."""
        self.dist.all_reduce(tensor)

    def one_shot(self, tensor):
        """Returns the sum."""
        return self.torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", self.dist.group.WORLD.group_name)

    def two_shot(self, tensor):
        """In place."""
        self.torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", self.dist.group.WORLD.group_name)


    # ---- that of QuickReduce, where vLLM is installed with it (ROCm)

    def quick_reduce(self, tensor, level):
        """Returns the sum. Levels: 0 as it is, 1 int8, 2 int6, 3 int4."""
        from vllm import _custom_ops as ops

        if self._quick_reduce is None:
            handle = ops.init_custom_qr(self.rank, self.size, None)
            ops.qr_open_handles(handle, self.gather(ops.qr_get_handle(handle)))
            self._quick_reduce = handle
        result = self.torch.empty_like(tensor)
        ops.qr_all_reduce(self._quick_reduce, tensor, result, level, False)
        return result


class SymmetricTensors:
    """Tensors of arlab.conformance in symmetric memory, where the operators of torch.ops.symm_mem want them.

    One buffer, in which one region at a time begins. A rank may write to it again when all ranks have finished the
    operator before: the check gathers results after every call, so all have.
    """

    def __init__(self, ranks, dtype, most_bytes):
        kind = ranks.dtype(dtype)
        self._torch = ranks.torch
        self._device = ranks.device
        self._buffer = ranks.symmetric_buffer(kind, most_bytes // kind.itemsize)

    def region(self, rank, content):
        if content.nbytes > self._buffer.nbytes:
            raise ValueError(f"a region of {content.nbytes} bytes: the symmetric buffer has {self._buffer.nbytes}")
        region = self._buffer[: content.nbytes // self._buffer.itemsize]
        region.view(self._torch.uint8).copy_(self._torch.from_numpy(content.copy()))
        return region

    def tensor(self, region, dtype, begin, elements):
        first = begin // region.itemsize
        return region[first : first + elements]

    def store(self, region, dtype, begin, elements, result):
        if result.dtype != region.dtype or result.numel() != elements:
            raise ValueError(f"the result is {result.numel()} x {result.dtype}, not {elements} x {region.dtype}")
        self.tensor(region, dtype, begin, elements).copy_(result.reshape(-1))

    def read(self, region):
        self._torch.cuda.synchronize(self._device)
        return region.view(self._torch.uint8).cpu().numpy()
