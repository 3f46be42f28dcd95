"""Writes files while their server ends and starts again: durable.py FOLDER STOP. It ends some
time after the file STOP is there.

Files are written in parts, then synced; then parts of them are written again, and synced. At
the end all are read with nothing cached: a server that was killed has lost what no COMMIT had
acknowledged, and the client had to send it again. No call may fail, because the mount is a hard
one."""

import os
import random
import sys
import threading
import traceback

folder, stop = sys.argv[1:]
THREADS, FILES, SIZE = 3, 4, 1_500_000
failures, written = [], 0


def write(chance, file, model, offset, length):
    block = chance.randbytes(length)
    assert os.pwrite(file, block, offset) == length
    model.extend(bytes(max(0, offset + length - len(model))))
    model[offset : offset + length] = block


def work(who):
    global written
    try:
        chance, models = random.Random(who), {}
        while not os.path.exists(stop):
            path = os.path.join(folder, f"{who}-{chance.randrange(FILES)}")
            model = models.setdefault(path, bytearray())
            file = os.open(path, os.O_RDWR | os.O_CREAT)
            if not model:
                while len(model) < SIZE:
                    write(
                        chance,
                        file,
                        model,
                        len(model),
                        chance.choice((4096, 10_000, 65_536, 200_000)),
                    )
            for _ in range(20):
                write(
                    chance,
                    file,
                    model,
                    chance.randrange(SIZE),
                    chance.choice((1, 100, 4096, 70_000)),
                )
            os.fsync(file)
            os.close(file)
            written += 1
        for path, model in models.items():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            found = bytearray()
            while block := os.read(file, 1 << 20):
                found += block
            os.close(file)
            wrong = [
                at
                for at in range(0, max(len(found), len(model)), 4096)
                if found[at : at + 4096] != model[at : at + 4096]
            ]
            assert (
                not wrong
            ), f"{path}: {len(found)} and {len(model)} bytes, other blocks at {wrong[:10]}"
    except Exception:
        failures.append(who)
        traceback.print_exc(file=sys.stdout)


os.mkdir(folder)
threads = [threading.Thread(target=work, args=(who,)) for who in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"RESULT durable synced={written} failed={len(failures)}", flush=True)
sys.exit(bool(failures) or written < THREADS)
