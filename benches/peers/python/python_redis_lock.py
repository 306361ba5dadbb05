import logging
import sys
from importlib.metadata import version

import redis
import redis_lock
from contender import HELD, run

logging.disable(logging.CRITICAL)
SOCKET = sys.argv[1]
shared_client = redis.StrictRedis(unix_socket_path=SOCKET)


def make(name, wait, shared):
    client = shared_client if shared else redis.StrictRedis(unix_socket_path=SOCKET)
    client.ping()
    lock = redis_lock.Lock(client, name, expire=HELD)
    return lock.acquire, lock.release


run(f"python-redis-lock {version('python-redis-lock')} (redis {redis.__version__})", make)
