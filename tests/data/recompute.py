#!/usr/bin/env python3
"""Recomputes vectors.json from the rules of the wire format, without the library: `make vectors`.

The TypeScript library made the file; this is a second opinion, in another language, about every pair in it.
"""

import base64
import hashlib
import json
import pathlib
import re
import sys
import unicodedata


class Invalid(Exception):
    pass


def nfc(text):
    return unicodedata.normalize("NFC", text)


def size(text):
    return len(text.encode())


def key(text):
    if not text or size(nfc(text)) > 512:
        raise Invalid
    return nfc(text)


def display_hash(text):
    units = nfc(text).encode("utf-16-le", "surrogatepass")
    a = b = d = 0
    for i in range(0, len(units), 2):
        c = units[i] | units[i + 1] << 8
        a, b, d = (31 * a + c) % 2**32, (127 * b + 3 * c) % 2**32, (2047 * d + 7 * c) % 2**32
    return f"{a:08x}{b:08x}{d:08x}"


def storage_key(prefix, text, limit, reserve):
    if not text:
        raise Invalid
    prefix = prefix.rstrip(":")
    before = prefix + ":" if prefix else ""
    if size(before) + reserve > limit:
        raise Invalid
    name = before + nfc(text)
    if size(name) + reserve <= limit:
        return name
    digest = hashlib.sha256(name.encode()).digest()[:16]
    name = before + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    if size(name) + reserve > limit:
        raise Invalid
    return name


def redis_key(prefix, text):
    return storage_key(prefix, text, 1000, 26)


def postgres_key(text):
    return storage_key("", text, 1700, 0)


def lock_id(text):
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}", text):
        raise Invalid


def fence(number):
    if not 0 <= int(number) < 10**15:
        raise Invalid
    return f"{int(number):015}"


def redis_prefix(prefix):
    prefix = "syncguard" if prefix is None else prefix
    if "fence:" in prefix or prefix.endswith("fence"):
        raise Invalid
    return prefix


def tables(locks, fences):
    locks, fences = locks or "syncguard_locks", fences or "syncguard_fence_counters"
    if locks == fences or not all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in (locks, fences)):
        raise Invalid
    return [locks, fences]


RULES = {
    "hashKey": display_hash,
    "makeStorageKey": storage_key,
    "redisLockKey": redis_key,
    "redisFenceKey": lambda prefix, text: redis_key(prefix, "fence:" + redis_key(prefix, text)),
    "redisIdKey": lambda prefix, text: redis_key(prefix, "id:" + text),
    "pgLockKey": postgres_key,
    "pgFenceKey": lambda text: postgres_key("fence:" + postgres_key(text)),
    "formatFence": fence,
    "normalizeAndValidateKey": key,
    "validateLockId": lock_id,
    "redisConfigPrefix": redis_prefix,
    "pgConfigTables": tables,
    "isLive": lambda expires, now, tolerance: expires > now - tolerance,
}


def main():
    pairs = json.loads(pathlib.Path(__file__).with_name("vectors.json").read_text())["vectors"]
    wrong = 0
    for pair in pairs:
        try:
            answer = {"result": RULES[pair["fn"]](*pair["args"])}
        except Invalid:
            answer = {"error": {"code": "InvalidArgument"}}
        if {name: pair[name] for name in ("result", "error") if name in pair} != answer:
            wrong += 1
            print(json.dumps({**pair, "recomputed": answer}))
    print(f"{len(pairs) - wrong} of {len(pairs)} pairs recomputed")
    return wrong > 0


sys.exit(main())
