"""Why a library's bits are others, in a sentence each, and what is known of kernels that only a GPU runs."""

WHY: dict[tuple[str, str], str] = {}
NOT_RUN: list[tuple[str, str, str]] = []
