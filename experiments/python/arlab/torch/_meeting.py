"""How ranks of a process group meet in its store, which takes whatever anybody sends. Needs no PyTorch, but a store like its own."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Sequence

from arlab._errors import Error
from arlab._files import read_whole

__all__ = ["Meeting", "key"]

_KEY_BYTES = 32
_NONCE_BYTES = 16
_FAILED, _FINE = b"!", b"="


def key() -> bytes:
    """A key that only processes of this user on this host can read; the first of them makes it."""
    named = os.environ.get("ARLAB_BOOTSTRAP_DIR")
    folder = Path(named or f"/tmp/arlab-{os.geteuid()}")
    try:
        if named is None:
            folder.mkdir(mode=0o700, exist_ok=True)
        there = folder.lstat()
        if not stat.S_ISDIR(there.st_mode) or there.st_uid != os.geteuid() or there.st_mode & 0o077:
            raise Error(f"{folder}: needed is a folder of this user's with mode 700; ARLAB_BOOTSTRAP_DIR names another one")
        path = folder / "key"
        if not os.path.lexists(path):
            own = folder / f"key-{secrets.token_hex(8)}"
            own.touch(mode=0o600, exist_ok=False)
            try:
                own.write_bytes(secrets.token_bytes(_KEY_BYTES))
                os.link(own, path)  # whole, and only if nobody was faster
            except FileExistsError:
                pass
            finally:
                own.unlink()
        found = read_whole(path, most=_KEY_BYTES)
    except OSError as error:
        raise Error(f"{error.filename}: {error.strerror}; ARLAB_BOOTSTRAP_DIR names another folder") from error
    if len(found) != _KEY_BYTES:
        raise Error(f"{path}: needed are {_KEY_BYTES} bytes; remove it")
    return found


def _port(store: Any) -> int:
    """Port of the store's server, below wrappers that only prefix names; 0 where it has none."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    port = getattr(store, "port", 0)
    return port if isinstance(port, int) else 0


class Meeting:
    """All-gathers by a store of PyTorch: what a rank has to say is a place there, and signed.

    The signature is of the group, the number of ranks, the port of the store, the place, and random bytes of every rank, which they say
    in the first round. So words of another group, and of another meeting of this one, are nothing here.
    """

    def __init__(self, store: Any, name: str, rank: int, ranks: int, timeout_s: float, group: str = ""):
        self._store, self._name, self._rank, self._ranks, self._timeout_s = store, name, rank, ranks, timeout_s
        self._round, self._key = 0, key()
        self._about = (group, str(ranks), str(_port(store)))
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._nonces: list[bytes] = []  # all ranks', once they are known

    def _place(self, rank: int) -> str:
        return f"{self._name}/{self._round}/{rank}"

    def _signature(self, rank: int, place: str, said: bytes) -> bytes:
        nonces = self._nonces
        if said[:1] == _FAILED:  # whoever gives up may not have heard all others
            nonces = [self._nonce] if rank == self._rank else nonces[rank : rank + 1] or [secrets.token_bytes(_NONCE_BYTES)]
        parts = [*(each.encode() for each in (*self._about, place)), *nonces, said]
        # With its length before each, no two lists of parts are the same text.
        return hmac.digest(self._key, b"".join(len(part).to_bytes(8, "little") + part for part in parts), hashlib.sha256)

    def _say(self, said: bytes) -> None:
        place = self._place(self._rank)
        self._store.set(place, self._signature(self._rank, place, said) + said)

    def _hear(self, rank: int, until: float) -> bytes:
        place = self._place(rank)
        try:
            self._store.wait([place], timedelta(seconds=max(until - time.monotonic(), 0.001)))
            heard = bytes(self._store.get(place))
        except RuntimeError as error:  # the store's server may be gone with its rank
            raise Error(f"rank {rank} did not come within {self._timeout_s:g} s") from error
        signature, said = heard[: hashlib.sha256().digest_size], heard[hashlib.sha256().digest_size :]
        if not hmac.compare_digest(signature, self._signature(rank, place, said)):
            raise Error(f"rank {rank}: what the store has from it was not written by this user on this host for this meeting")
        if said[:1] == _FAILED:
            raise Error(said[1:].decode(errors="replace"))
        return said[1:]

    def _exchange(self, mine: bytes, until: float) -> list[bytes]:
        self._say(_FINE + mine)
        try:
            said = [self._hear(rank, until) for rank in range(self._ranks)]
        except Error as error:
            self.give_up(str(error))
            raise
        self._round += 1
        return said

    def gather(self, mine: bytes) -> Sequence[bytes]:
        """All ranks' messages, by rank. Raises Error, on all, where one does not come, gives up, or is a stranger."""
        until = time.monotonic() + self._timeout_s
        if not self._nonces:
            nonces = self._exchange(self._nonce, until)
            if nonces[self._rank] != self._nonce:
                self.give_up(f"rank {self._rank} is there twice")
                raise Error(f"rank {self._rank} is there twice, or somebody has repeated what it said once")
            self._nonces = nonces
        return self._exchange(mine, until)

    def give_up(self, why: str) -> None:
        """Those who wait for this rank's next word hear why there is none."""
        self._round += 1
        try:
            self._say(_FAILED + why.encode())
        except RuntimeError:  # nobody is there any more
            pass
