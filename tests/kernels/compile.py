"""Compiles every kernel for the CUDA architectures named, without a GPU; prints what each takes.

The interpreter runs a kernel as Python does; only the compiler says whether it is one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kvlab.runtime.attention import kernels as paged
from kvlab.runtime.cuda import kernels as between

POINTERS = {
    "rows": "*i64",
    "tables": "*i32",
    "firsts": "*i64",
    "lengths": "*i64",
    "slot_mapping": "*i64",
    "positions": "*i64",
    "partial": "*fp32",
    "partial_lse": "*fp32",
}
SCALARS = {"scale": "fp32", "eps": "fp32"}


def compiled(kernel: Any, dtype: str, capability: int, warps: int, **constants: Any) -> Any:
    """Strides as the launcher sees them: int32 and multiples of 16, pointers likewise aligned."""
    names = kernel.arg_names
    signature = {}
    for name in names:
        if name in constants:
            signature[name] = "constexpr"
        elif name in SCALARS:
            signature[name] = SCALARS[name]
        elif name.endswith(("_row", "_head", "_stride")):
            signature[name] = "i32"
        else:
            signature[name] = POINTERS.get(name, f"*{dtype}")
    aligned = [at for at, name in enumerate(names) if signature[name][0] in "*i"]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(at,): [["tt.divisibility", 16]] for at in aligned},
    )
    options = {"num_warps": warps, "num_stages": 2 if dtype == "fp32" else 3}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def main() -> None:
    for dtype, product in (("bf16", tl.bfloat16), ("fp16", tl.float16), ("fp32", tl.float32)):
        for capability in map(int, sys.argv[1:]):
            attention = {"GROUP": 4, "GROUP_PAD": 16, "HEAD": 128, "HEAD_PAD": 128}
            attention |= {"BLOCK_SIZE": 16, "TILE": 32 if dtype == "fp32" else 64, "LEAST": 64}
            halves = {"HEADS": 32, "KV_HEADS": 8, "HALF": 64, "HALF_PAD": 64}
            made = [
                compiled(paged.write_kv, dtype, capability, 4, WIDTH=1024, WIDTH_PAD=1024),
                compiled(
                    paged.paged_decode, dtype, capability, 4, SPLITS=1, DOT=product, **attention
                ),
                compiled(
                    paged.paged_decode, dtype, capability, 4, SPLITS=16, DOT=product, **attention
                ),
                compiled(
                    paged.combine_splits,
                    dtype,
                    capability,
                    4,
                    SPLITS=64,
                    HEAD=128,
                    HEAD_PAD=128,
                    LEAST=64,
                ),
                compiled(
                    between.add_norm, dtype, capability, 8, SIZE=4096, SIZE_PAD=4096, ADD=True
                ),
                compiled(between.rotate_and_store, dtype, capability, 1, NORM=True, **halves),
                compiled(between.silu_times, dtype, capability, 4, SIZE=14336, TILE=1024),
            ]
            for kernel in made:
                found = [kernel.metadata.name, dtype, capability, kernel.metadata.shared]
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
