import sys

import redis
from contender import HELD, run

SOCKET = sys.argv[1]
shared_client = redis.Redis(unix_socket_path=SOCKET)


def make(name, wait, shared):
    client = shared_client if shared else redis.Redis(unix_socket_path=SOCKET)
    client.ping()
    options = {"sleep": 0.002} if wait == "tuned" else {}
    lock = client.lock(name, timeout=HELD, thread_local=False, **options)
    return lock.acquire, lock.release


run(f"redis {redis.__version__}", make)
