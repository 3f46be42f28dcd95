"""Uses a mounted directory as programs do, and compares with the directory itself: nfs.py MOUNTED EXPORTED [LEFT-OUT...]."""

import errno
import mmap
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import traceback

mounted, exported, *left_out = sys.argv[1:]


def at(*names):
    return os.path.join(mounted, *names)


def there(*names):
    return os.path.join(exported, *names)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
        os.fsync(file.fileno())


def read(path):
    with open(path, "rb") as file:
        return file.read()


def fails(number, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError(f"{call.__name__}{arguments} should fail")


def files_and_folders():
    os.mkdir(at("d"))
    fails(errno.EEXIST, os.mkdir, at("d"))
    write(at("d", "f"), b"content")
    assert read(there("d", "f")) == b"content"
    fails(errno.ENOTEMPTY, os.rmdir, at("d"))
    fails(errno.EISDIR, os.unlink, at("d"))
    fails(errno.ENOTDIR, os.listdir, at("d", "f"))
    os.rename(at("d", "f"), at("g"))
    os.rename(at("g"), at("d", "h"))
    assert os.listdir(there("d")) == ["h"]
    os.unlink(at("d", "h"))
    os.rmdir(at("d"))
    fails(errno.ENOENT, os.stat, at("d"))


def names():
    for name in (
        "n" * 255,
        "Grüße 😀",
        "with space",
        b"\xff\xfe".decode(errors="surrogateescape"),
        "...",
    ):
        write(at(name), b"x")
        assert name in os.listdir(at()) and os.path.exists(there(name))
        os.unlink(at(name))
    fails(errno.ENAMETOOLONG, open, at("n" * 256), "w")


def links_and_special_files():
    write(at("f"), b"x")
    os.link(at("f"), at("hard"))
    os.symlink("f", at("soft"))
    os.symlink("x" * 4000, at("long"))
    assert (
        os.stat(at("f")).st_nlink == 2
        and read(at("soft")) == b"x"
        and len(os.readlink(at("long"))) == 4000
    )
    os.mkfifo(at("pipe"), 0o640)
    os.mknod(at("null"), 0o20666, os.makedev(1, 3))
    assert os.stat(at("null")).st_rdev == os.makedev(1, 3) and read(at("null")) == b""
    for name in ("f", "hard", "soft", "long", "pipe", "null"):
        os.unlink(at(name))


def attributes():
    write(at("f"), b"x")
    os.chmod(at("f"), 0o4751)
    os.utime(at("f"), ns=(1234567890123456789, 2987654321987654321))
    os.chown(at("f"), 12, 34)
    for path in (at("f"), there("f")):
        stat = os.stat(path)
        assert (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777) == (12, 34, 0o751), stat
        assert (stat.st_atime_ns, stat.st_mtime_ns) == (1234567890123456789, 2987654321987654321)
    assert os.stat(at("f")).st_ino == os.stat(there("f")).st_ino
    os.unlink(at("f"))


def exclusive():
    os.close(os.open(at("x"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
    assert os.stat(at("x")).st_mode & 0o7777 == 0o640
    fails(errno.EEXIST, os.open, at("x"), os.O_CREAT | os.O_EXCL)
    os.unlink(at("x"))


def data():
    chance = random.Random(3)
    model = bytearray()
    with open(at("f"), "w+b", buffering=0) as file:
        for _ in range(200):
            offset, size = chance.randrange(400_000), chance.choice((1, 100, 4096, 5000, 65_536))
            if chance.random() < 0.1:
                file.truncate(offset)
                del model[offset:]
                model.extend(bytes(offset - len(model)))
            elif chance.random() < 0.6:
                block = chance.randbytes(size)
                file.seek(offset)
                assert file.write(block) == size
                model.extend(bytes(max(0, offset + size - len(model))))
                model[offset : offset + size] = block
            else:
                file.seek(offset)
                assert file.read(size) == model[offset : offset + size]
        os.fsync(file.fileno())
    assert read(there("f")) == model
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    assert read(at("f")) == model
    os.unlink(at("f"))


def large_and_sparse():
    with open(at("f"), "wb") as file:
        file.seek(5_000_000_000)
        file.write(b"end")
    stat = os.stat(at("f"))
    assert stat.st_size == 5_000_000_003 and stat.st_blocks < 1000
    with open(at("f"), "rb") as file:
        file.seek(4_999_999_998)
        assert file.read() == b"\0\0end"
    os.truncate(at("f"), 3)
    os.unlink(at("f"))


def direct():
    block = mmap.mmap(-1, 131_072)
    block.write(os.urandom(131_072))
    fd = os.open(at("f"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
    assert os.pwrite(fd, block, 8192) == 131_072
    other = mmap.mmap(-1, 131_072)
    assert os.preadv(fd, [other], 8192) == 131_072 and other[:] == block[:]
    os.close(fd)
    os.unlink(at("f"))


def mapped():
    fd = os.open(at("f"), os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 1 << 20)
    memory = mmap.mmap(fd, 1 << 20)
    memory[500_000:500_005] = b"hello"
    memory.flush()
    assert read(there("f"))[500_000:500_005] == b"hello"
    memory.close()
    os.close(fd)
    os.unlink(at("f"))


def open_without_a_name():
    file = open(at("f"), "w+b", buffering=0)
    file.write(b"one")
    os.unlink(at("f"))
    file.write(b"two")
    file.seek(0)
    assert file.read() == b"onetwo"
    write(at("g"), b"new")
    write(at("h"), b"newer")
    held = open(at("g"), "rb")
    os.rename(at("h"), at("g"))
    assert held.read() == b"new" and read(at("g")) == b"newer"
    held.close()
    file.close()
    os.unlink(at("g"))
    # The client takes its own names for them away when it has the time.
    for _ in range(100):
        if not [name for name in os.listdir(there()) if name.startswith(".nfs")]:
            return
        time.sleep(0.1)
    raise AssertionError("names of the client's remain")


def appended():
    def append(who):
        for i in range(100):
            with open(at("log"), "a") as file:
                file.write(f"{who} {i}\n")

    threads = [threading.Thread(target=append, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(there("log")).splitlines()) == 400
    os.unlink(at("log"))


def many():
    os.mkdir(at("many"))
    for i in range(1500):
        open(at("many", f"{i}"), "w").close()
    assert sorted(os.listdir(at("many"))) == sorted(str(i) for i in range(1500))
    assert sum(entry.stat().st_size for entry in os.scandir(at("many"))) == 0
    # Entries go while they are read.
    for entry in os.scandir(at("many")):
        os.unlink(entry.path)
    os.rmdir(at("many"))


def tree():
    shutil.copytree("/usr/lib/python3", at("tree"), symlinks=True)
    subprocess.run(["diff", "-r", "--no-dereference", "/usr/lib/python3", at("tree")], check=True)
    subprocess.run(["tar", "-C", at(), "-cf", at("tree.tar"), "tree"], check=True)
    subprocess.run(["tar", "-C", at(), "--compare", "-f", at("tree.tar")], check=True)
    os.unlink(at("tree.tar"))
    shutil.rmtree(at("tree"))


def database():
    import sqlite3

    base = sqlite3.connect(at("base"))
    base.execute("create table t(a, b)")
    for i in range(20):
        with base:
            base.executemany(
                "insert into t values(?, hex(randomblob(40)))", ((i * 100 + j,) for j in range(100))
            )
    base.execute("create index i on t(b)")
    base.close()
    base = sqlite3.connect(there("base"))
    assert base.execute("pragma integrity_check").fetchone() == ("ok",)
    assert base.execute("select count(*) from t").fetchone() == (2000,)
    base.close()
    os.unlink(at("base"))


def other_users():
    os.mkdir(at("shared"))
    os.chmod(at("shared"), 0o1777)
    os.mkdir(at("private"), 0o700)
    write(at("root's"), b"x")
    os.chmod(at("root's"), 0o644)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([5])
            os.setgid(1000)
            os.setuid(1000)
            write(at("shared", "own"), b"mine")
            assert os.stat(at("shared", "own")).st_uid == 1000
            fails(errno.EACCES, os.listdir, at("private"))
            fails(errno.EACCES, open, at("root's"), "w")
            fails(errno.EACCES, write, at("private", "x"), b"")
            fails(errno.EPERM, os.chmod, at("root's"), 0o777)
            os.chmod(at("shared", "own"), 0)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.unlink(at("shared", "own"))
    for name in ("shared", "private"):
        os.rmdir(at(name))
    os.unlink(at("root's"))


failed = 0
tests = (
    files_and_folders,
    names,
    links_and_special_files,
    attributes,
    exclusive,
    data,
    large_and_sparse,
    direct,
    mapped,
    open_without_a_name,
    appended,
    many,
    tree,
    database,
    other_users,
)
tests = [test for test in tests if test.__name__ not in left_out]
for test in tests:
    try:
        test()
        print(f"nfs: {test.__name__}: ok", flush=True)
    except Exception:
        failed += 1
        print(f"nfs: {test.__name__}: failed", flush=True)
        traceback.print_exc(file=sys.stdout)
print(f"RESULT nfs ok={len(tests) - failed} failed={failed}", flush=True)
sys.exit(failed > 0)
