"""Uses a mounted directory as programs do: gateway.py MOUNTED OTHER [compare]. OTHER is the
same by another mount.

What is left in MOUNTED/kept has its checksums in /var/tmp/kept.json; `compare` looks at them
again."""

import hashlib
import json
import mmap
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import traceback

mounted, other = sys.argv[1], sys.argv[2]
LIST = "/var/tmp/kept.json"
SOURCE = "/usr/lib/python3.11"


def at(*names):
    return os.path.join(mounted, *names)


def run(*command, **named):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **named)
    assert done.returncode == 0, f"{command}: {done.stdout.decode(errors='replace')[-2000:]}"
    return done.stdout


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")


def checksum(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def copied_tree():
    run("cp", "-r", "--preserve=timestamps", os.path.join(SOURCE, "json"), at("kept", "cp"))
    run("diff", "-r", os.path.join(SOURCE, "json"), at("kept", "cp"))


def synchronised():
    source, target = os.path.join(SOURCE, "email") + "/", at("kept", "rsync") + "/"
    run("rsync", "-a", source, target)
    assert run("rsync", "-aci", "--delete", source, target) == b""
    # Whole files in the place of others, and changes inside of one.
    os.unlink(target + "__init__.py")
    with open(target + "message.py", "r+b") as file:
        file.seek(5000)
        file.write(b"changed")
    run("rsync", "-ac", "--inplace", "--no-whole-file", source, target)
    drop_caches()
    run("diff", "-r", source, target)


def cloned():
    here = {
        **os.environ,
        "HOME": "/root",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    git = lambda *command, where: run("git", *command, cwd=where, env=here)
    source = "/var/tmp/repository"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(os.path.join(SOURCE, "asyncio"), source)
    git("init", "-q", where=source)
    git("add", ".", where=source)
    git("commit", "-qm", "one", where=source)
    git("clone", "-q", "--no-hardlinks", source, at("kept", "clone"), where="/")
    clone = at("kept", "clone")
    with open(os.path.join(clone, "new"), "w") as file:
        file.write("new\n" * 3000)
    git("add", ".", where=clone)
    git("commit", "-qm", "two", where=clone)
    git("gc", "-q", where=clone)
    git("fsck", "--full", "--strict", where=clone)
    drop_caches()
    assert git("status", "--porcelain", where=clone) == b""
    git("clone", "-q", clone, "/var/tmp/back", where="/")
    run("diff", "-r", "--exclude=.git", clone, "/var/tmp/back")
    shutil.rmtree("/var/tmp/back")


def database():
    base = sqlite3.connect(at("kept", "base"))
    base.execute("pragma cache_size=50")
    base.execute("create table t(a integer primary key, b)")
    base.execute("create index i on t(b)")
    for step in range(12):
        with base:
            base.executemany(
                "insert into t(b) values(?)",
                ((hashlib.sha256(b"%d %d" % (step, i)).hexdigest(),) for i in range(80)),
            )
    with base:
        base.execute("delete from t where a % 3 = 0")
    base.execute("vacuum")
    base.close()
    drop_caches()
    base = sqlite3.connect(at("kept", "base"))
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    assert base.execute("select count(*) from t").fetchone() == (640,)
    base.close()


def archived():
    """Many small files by tar, there and back."""
    chance = random.Random(4)
    shutil.rmtree("/var/tmp/many", ignore_errors=True)
    for i in range(400):
        folder = f"/var/tmp/many/{i % 20}"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/{i}", "wb") as file:
            file.write(chance.randbytes(chance.choice((0, 1, 47, 48, 100, 4095, 4096, 4097, 9000))))
    run("tar", "-C", "/var/tmp", "-cf", "/var/tmp/many.tar", "many")
    run("tar", "-C", at("kept"), "-xf", "/var/tmp/many.tar")
    drop_caches()
    run("tar", "-C", at("kept"), "--compare", "-f", "/var/tmp/many.tar")


def changed_in_place():
    """Renames, unlinks, appends, truncations and mappings, read back by the other mount."""
    path, new = at("kept", "changed"), at("kept", "renamed")
    model = bytearray(os.urandom(20_000))
    with open(path, "wb") as file:
        file.write(model)
    os.rename(path, new)
    with open(new, "ab") as file:
        file.write(b"appended" * 700)
    model += b"appended" * 700
    for size in (12_345, 4096, 4097, 60_000, 59_999):
        os.truncate(new, size)
        del model[size:]
        model.extend(bytes(size - len(model)))
    with open(new, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[4090:4100] = b"0123456789"
        memory[59_990:59_999] = b"the end.."
        memory.flush()
        os.fsync(file.fileno())
    model[4090:4100], model[59_990:59_999] = b"0123456789", b"the end.."
    with open(os.path.join(other, "kept", "renamed"), "rb") as file:
        assert file.read() == model
    assert not os.path.exists(path)


def large():
    """By dd, buffered and with O_DIRECT."""
    run("dd", "if=/dev/urandom", "of=/var/tmp/large", "bs=1M", "count=48")
    wanted = checksum("/var/tmp/large")
    run("dd", "if=/var/tmp/large", f"of={at('kept', 'large')}", "bs=1M", "conv=fsync")
    drop_caches()
    assert checksum(at("kept", "large")) == wanted
    run("dd", "if=/var/tmp/large", f"of={at('kept', 'direct')}", "bs=512k", "oflag=direct")
    run("dd", f"if={at('kept', 'direct')}", "of=/var/tmp/back", "bs=384k", "iflag=direct")
    assert checksum("/var/tmp/back") == wanted
    run("cp", "--sparse=always", at("kept", "large"), at("kept", "again"))
    os.unlink(at("kept", "again"))
    for path in ("/var/tmp/large", "/var/tmp/back"):
        os.unlink(path)


def exercised():
    """As fsx does: one file, random operations, against a model."""
    chance = random.Random(int(os.environ.get("SEED", "5")))
    size_max, model = 300_000, bytearray()
    path = at("kept", "fsx")
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    for step in range(int(os.environ.get("STEPS", "2500"))):
        offset, length = chance.randrange(size_max), chance.choice(
            (1, 40, 48, 500, 4096, 5000, 20_000, 65_536)
        )
        if chance.random() < 0.3:
            offset -= offset % 4096
        kind = chance.choice(
            (
                "write",
                "write",
                "write",
                "read",
                "read",
                "read",
                "truncate",
                "map",
                "sync",
                "reopen",
                "drop",
            )
        )
        what = f"step {step}: {kind} {offset} {length} of {len(model)}"
        if kind == "write":
            block = chance.randbytes(length)
            assert os.pwrite(file, block, offset) == length, what
            model.extend(bytes(max(0, offset + length - len(model))))
            model[offset : offset + length] = block
        elif kind == "read":
            assert os.pread(file, length, offset) == model[offset : offset + length], what
        elif kind == "truncate" and chance.random() < 0.5:
            os.ftruncate(file, offset)
            del model[offset:]
            model.extend(bytes(offset - len(model)))
        elif kind == "map" and model:
            offset %= len(model)
            with mmap.mmap(file, len(model)) as memory:
                assert memory[offset : offset + length] == model[offset : offset + length], what
                block = chance.randbytes(min(length, len(model) - offset))
                memory[offset : offset + len(block)] = block
                model[offset : offset + len(block)] = block
        elif kind == "sync":
            os.fsync(file)
        elif kind == "reopen" and chance.random() < 0.3:
            os.close(file)
            file = os.open(path, os.O_RDWR)
        elif kind == "drop" and chance.random() < 0.05:
            drop_caches()
        assert os.fstat(file).st_size == len(model), what
    os.fsync(file)
    os.close(file)
    with open(os.path.join(other, "kept", "fsx"), "rb") as again:
        assert again.read() == model


def files_below(folder):
    for folder, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, mounted), checksum(path)


def compare():
    with open(LIST) as file:
        wanted = json.load(file)
    assert len(wanted) > 400, len(wanted)
    found = dict(files_below(at("kept")))
    assert found == wanted, sorted(set(found.items()) ^ set(wanted.items()))[:10]
    run(
        "git",
        "-c",
        f"safe.directory={at('kept', 'clone')}",
        "-C",
        at("kept", "clone"),
        "fsck",
        "--full",
    )


if sys.argv[3:] == ["compare"]:
    tests = [compare]
else:
    os.mkdir(at("kept"))
    tests = [
        copied_tree,
        synchronised,
        cloned,
        database,
        archived,
        changed_in_place,
        large,
        exercised,
    ]
failed = 0
for test in tests:
    try:
        test()
        print(f"gateway: {test.__name__}: ok", flush=True)
    except Exception:
        failed += 1
        print(f"gateway: {test.__name__}: failed", flush=True)
        traceback.print_exc(file=sys.stdout)
if tests[0] is not compare:
    with open(LIST, "w") as file:
        json.dump(dict(files_below(at("kept"))), file)
print(f"RESULT gateway ok={len(tests) - failed} failed={failed}", flush=True)
sys.exit(failed > 0)
