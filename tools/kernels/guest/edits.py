"""Changes a file in five ways by turns, and asks for its page at once after each.

Usage: edits.py URL FILE COUNT [PAUSE]

PAUSE: seconds after each of the requests before the next edit; a page that is computed needs some
until it is kept."""

import http.client
import os
import sys
import time
import urllib.parse

url, path, count = urllib.parse.urlparse(sys.argv[1]), sys.argv[2], int(sys.argv[3])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0
connection = None


def get():
    global connection
    for last in (False, True):
        try:
            if connection is None:
                connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=30)
            connection.request("GET", url.path)
            return connection.getresponse().read()
        except (http.client.HTTPException, OSError):
            connection = None
            if last:
                raise


def overwrite(body):
    file = os.open(path, os.O_WRONLY)
    os.pwrite(file, body, 0)
    os.close(file)


def truncate(body):
    with open(path, "wb") as file:
        file.write(body)


def rename(body):
    with open(path + ".new", "wb") as file:
        file.write(body)
    os.rename(path + ".new", path)


def replace(body):
    with open(path + ".new", "wb") as file:
        file.write(body)
    os.unlink(path)
    os.rename(path + ".new", path)


def append(body):
    os.truncate(path, 0)
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(file, body)
    os.close(file)


ways = [overwrite, truncate, rename, replace, append]
size, stale = len(get()), 0
for number in range(count):
    for _ in range(3):
        get()
        time.sleep(pause)
    way = ways[number % len(ways)]
    body = f"<p>version {number:06} by {way.__name__}</p>".encode().ljust(size, b".")
    way(body)
    if get() != body:
        stale += 1
        print(f"stale after {way.__name__} {number}")
print(f"edits={count} stale={stale}")
