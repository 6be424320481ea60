"""Why a library's bits are others, in a sentence each, and what is known of kernels that only a GPU runs."""

WHY: dict[tuple[str, str], str] = {
    ("torchao", "nvfp4-ts1"): "It keeps a block's scale at 2^-6 or more, so tiny blocks and blocks of zeros have scale `08`; above that all is equal.",
    ("torchao", "nvfp4-ts448"): "It is told 1 / g and multiplies by its reciprocal, which is not g, so ties go elsewhere; and it keeps a scale at 2^-6 or more.",
    ("torchao", "int8-.*"): "Where an infinity is given, codes are not all 0, as ours are in the whole message.",
    ("torchao", ".*-rceil"): "Below 2^-126 its scale is no normal number, and codes become 0; zeros of a block of zeros keep their signs, and an infinity has scale `FE`.",
    ("torchao", "mx.*"): "A scale of code 0 is 2^-127 in OCP's format, and it divides by 2^-126; zeros of a block of zeros keep their signs, an infinity has a scale.",
    ("compressed-tensors", "mxfp8-e4m3-even"): "It rounds the largest magnitude to one bit of mantissa, as for fp4; the rule here takes the element's three.",
    ("compressed-tensors", "mx.*"): "A largest magnitude that rounds up to 2^128 has an infinite scale; a NaN has scale code 0, and signs of zeros are not kept.",
    ("compressed-tensors", "nvfp4.*"): "A bf16 tensor has scales computed in bf16, and a scale that rounds to 0 becomes 1/8.",
    ("nvidia-modelopt", "mxfp8.*"): "Zeros of a block of zeros keep their signs, and an infinity has scale `FE`.",
    ("nvidia-modelopt", "mxfp4.*"): "Ties between two codes go to the smaller one, not to the even one, and +0 is coded as -0.",
    ("nvidia-modelopt", "nvfp4.*"): "It divides by scale times RN(1 / g), so ties go elsewhere; a scale that rounds to 0 becomes 2^-9, or 1 for a block of zeros; -0 is coded as +0.",
    ("amd-quark", ".*-even"): "The exponent of a largest magnitude that rounds up to 2^128 is lost; a block with an infinity does not decode to NaN.",
    ("amd-quark", ".*"): "The logarithm of the largest magnitude is taken in the tensor's dtype, which rounds it up just below a power of two in bf16; tiny scales become 2^-23.",
    ("gfloat", "mxint8"): "It writes -128, which OCP allows and ours never does; NaN has no code.",
    ("gfloat", "mx.*"): "Zeros of a block of zeros keep their signs; NaN has no code in fp4 and fp6.",
    ("ml_dtypes", ".*"): "It rounds elements only: those of a block of zeros keep their signs, and of one with a NaN ours are all 0.",
    ("bitsandbytes", "nf4.*"): "It takes amax as at least 1e-38 and codes 0 as the level 7, where a block of zeros or of tiny numbers has code 0 here.",
    ("onnxruntime", ".*"): "Finite numbers are equal; ours makes a whole message with an infinity NaN.",
    ("optimum-quanto", ".*"): "Finite numbers are equal; ours makes a whole message with an infinity NaN.",
    ("gguf", "mxfp4"): "It takes the nearest of 16 values and of two that are as near the first, so ties go towards zero; -0 is coded as +0, and exponents below 0 wrap around.",
    ("gguf", "int8-g32-sym"): "Q8_0 is another format: its scale is fp16 and its codes are made by the scale before that rounding, ours by the bf16 scale that travels.",
    ("transformer-engine", "nvfp4-te.*"): "A block with a NaN or an infinity gets a scale, where ours has the NaN `7F`; its reference codes -0 as +0, its kernels as -0.",
    ("fbgemm-gpu-cpu", "mxfp4-even"): "Ties go away from zero, but that of the largest magnitude's mantissa goes down; it has no codes for infinities, and scales end at 2^125.",
    ("fbgemm-gpu-cpu", ".*"): "Ties go away from zero; it has no codes for infinities, and scales end at 2^125.",
    ("auto-round", "nvfp4.*"): "A block with a NaN or an infinity gets a scale, where ours has the NaN `7F`.",
    ("auto-round", "mx.*"): "Zeros lose their sign.",
    ("torchft-nightly", ".*"): "Its wire has the multiplier RN(448 / amax), not a scale, and no bound of 1e-4 below amax, so tiny blocks have other codes.",
}

NOT_RUN: list[tuple[str, str, str]] = [
    ("FlashInfer 0.7.2", "`fp8-e4m3-g<G>`", "Triton with PTX inside, which the interpreter does not take: scale = amax * RN(1/448), as ours, and factor 448 / amax by an approximate division; amax at least 1e-12, ours 1e-4."),
    ("FlashInfer 0.7.2", "`nvfp4-vllm`", "CUDA; the order of operations is that of vLLM's kernel, its reciprocals are approximate."),
    ("vLLM", "`qr-*`, `nvfp4-vllm`", "CUDA and HIP; what they round is in the specification of these codecs."),
    ("microxcaling", "`mx*`", "Not on PyPI."),
]  # fmt: skip
