#!/usr/bin/env python3
"""Does the kernel agree with the model of ordinary files?

For each litmus file in tests/litmus/files: the operations are made on a real file system in a loop device, then something
happens that the kernel may do by itself at any time (pages are written back, the log is committed), and the image is
copied. The copy is what a disk would hold if the power failed now. It is mounted, which replays the log, and the tree that is found
must be one of those that the litmus file lists for this file system.

usage: agrees.py REPOSITORY SCRATCH FILE-SYSTEM[:NAME,NAME...]...     (as root; names are those of litmus files)
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_LINKAT, SYS_SYNC_FILE_RANGE, SYS_FALLOCATE, SYS_RENAMEAT2 = 265, 277, 285, 316
WAIT_WRITE_WAIT = 7
BTRFS_IOC_WAIT_SYNC, BTRFS_IOC_START_SYNC = 0x40089416, 0x80089418
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
PAGE = 4096
OLD = 0xEE


def call(number, *arguments):
    if LIBC.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def copy_image(source, target):
    """All bytes, read through the cache; holes stay holes."""
    with open(source, "rb", buffering=0) as reader, open(target, "wb", buffering=0) as writer:
        size = os.fstat(reader.fileno()).st_size
        writer.truncate(size)
        end = 0
        while end < size:
            try:
                at = os.lseek(reader.fileno(), end, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(reader.fileno(), at, os.SEEK_HOLE)
            while at < end:
                data = os.pread(reader.fileno(), min(1 << 20, end - at), at)
                os.pwrite(writer.fileno(), data, at)
                at += len(data)


class Image:
    """A file system in a file, mounted."""

    def __init__(self, kind, scratch):
        self.kind = kind
        self.path = os.path.join(scratch, kind + ".img")
        self.mount_point = os.path.join(scratch, kind)
        self.copies = 0
        self.copy = os.path.join(scratch, kind + ".copy")
        self.copy_point = os.path.join(scratch, kind + "-after")
        size = {"ext4": 64, "xfs": 320, "btrfs": 256}[kind] << 20
        with open(self.path, "wb") as image:
            image.truncate(size)
        run(*{"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"],
              "btrfs": ["mkfs.btrfs", "-q", "-f"]}[kind], self.path)
        os.makedirs(self.mount_point, exist_ok=True)
        os.makedirs(self.copy_point, exist_ok=True)
        run("mount", "-o", "loop", self.path, self.mount_point)

    def close(self):
        run("umount", self.mount_point)

    def crash(self, case):
        """The tree of a case after a power failure now."""
        # A new name each time: mount finds a loop device of the same file again, with old blocks in its cache.
        self.copies += 1
        copy = f"{self.copy}-{self.copies}"
        copy_image(self.path, copy)
        # A second file system with the same identity: XFS would refuse it, and Btrfs refuses it before Linux 6.7.
        options = {"xfs": "loop,nouuid", "btrfs": "loop", "ext4": "loop"}[self.kind]
        run("mount", "-o", options, copy, self.copy_point)
        try:
            return read_tree(os.path.join(self.copy_point, case))
        finally:
            run("umount", self.copy_point)
            os.unlink(copy)


def read_tree(root):
    tree = {}
    if not os.path.isdir(root):
        raise RuntimeError("the directory of the case is gone")
    for parent, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(parent, name)
            short = os.path.relpath(path, root)
            if os.path.islink(path):
                tree[short] = "-> " + os.readlink(path)
            elif os.path.isdir(path):
                tree[short] = "/"
            else:
                with open(path, "rb") as file:
                    tree[short] = runs(file.read())
    return tree


def runs(content):
    """The same text as in litmus files: `WHO:BYTES`."""
    parts = []
    at = 0
    while at < len(content):
        end = at
        while end < len(content) and content[end] == content[at]:
            end += 1
        who = {0: "0s", OLD: "old"}.get(content[at], str(content[at] - 1))
        parts.append(f"{who}:{end - at}")
        at = end
    return " ".join(parts)


def without_offsets(text):
    """What was moved says from where; the bytes do not."""
    merged = []
    for part in text.split():
        if ":" not in part or part.startswith("->"):
            return text
        who, count = part.split(":")
        who = who.split("+")[0]
        if merged and merged[-1][0] == who:
            merged[-1][1] += int(count)
        else:
            merged.append([who, int(count)])
    return " ".join(f"{who}:{count}" for who, count in merged)


class Program:
    """The operations of a litmus file, on a real directory."""

    def __init__(self, root, litmus):
        self.root = root
        self.handles = {}
        os.makedirs(root)
        for path, length in sorted(litmus.get("tree", {}).items()):
            if path.endswith("/"):
                os.mkdir(os.path.join(root, path))
            else:
                with open(os.path.join(root, path), "wb") as file:
                    file.write(bytes([OLD]) * length)
        self.operations = litmus["operations"]

    def path(self, name):
        return os.path.join(self.root, name)

    def descriptor(self, name):
        if name in self.handles:
            return os.dup(self.handles[name])
        flags = os.O_RDONLY if os.path.isdir(self.path(name)) else os.O_RDWR
        return os.open(self.path(name), flags)

    def execute(self):
        for index, (name, *arguments) in enumerate(self.operations):
            self.one(index, name, arguments)

    def one(self, index, name, arguments):
        if name == "create":
            os.close(os.open(self.path(arguments[0]), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        elif name == "tmpfile":
            self.handles[arguments[0]] = os.open(self.root, os.O_TMPFILE | os.O_RDWR)
        elif name == "mkdir":
            os.mkdir(self.path(arguments[0]))
        elif name == "symlink":
            os.symlink(arguments[0], self.path(arguments[1]))
        elif name == "link":
            if arguments[0] in self.handles:
                source = f"/proc/self/fd/{self.handles[arguments[0]]}".encode()
                target = self.path(arguments[1]).encode()
                call(SYS_LINKAT, AT_FDCWD, ctypes.c_char_p(source), AT_FDCWD, ctypes.c_char_p(target), AT_SYMLINK_FOLLOW)
            else:
                os.link(self.path(arguments[0]), self.path(arguments[1]))
        elif name == "unlink":
            os.unlink(self.path(arguments[0]))
        elif name == "rmdir":
            os.rmdir(self.path(arguments[0]))
        elif name == "rename":
            os.rename(self.path(arguments[0]), self.path(arguments[1]))
        elif name == "exchange":
            first, second = (self.path(a).encode() for a in arguments)
            call(SYS_RENAMEAT2, AT_FDCWD, ctypes.c_char_p(first), AT_FDCWD, ctypes.c_char_p(second), 2)
        elif name == "truncate":
            os.truncate(self.path(arguments[0]), arguments[1])
        elif name == "sync":
            descriptor = os.open(self.root, os.O_RDONLY)
            LIBC.syncfs(descriptor)
            os.close(descriptor)
        elif name == "close":
            # The writer of this test closes after each operation; ext4 looks at the first close after a truncation.
            os.close(self.descriptor(arguments[0]))
        else:
            descriptor = self.descriptor(arguments[0])
            try:
                self.with_descriptor(descriptor, index, name, arguments[1:])
            finally:
                os.close(descriptor)

    def with_descriptor(self, descriptor, index, name, numbers):
        if name == "write":
            data = bytes([index + 1]) * numbers[1]
            assert os.pwrite(descriptor, data, numbers[0]) == len(data)
        elif name in ("fsync", "msync"):
            # An msync of a part makes no less durable than the model says if all is synced.
            os.fsync(descriptor)
        elif name == "fdatasync":
            os.fdatasync(descriptor)
        else:
            mode = {"allocate": 0, "allocate_keep_size": 1, "punch": 3, "collapse": 8, "zero": 16,
                    "zero_keep_size": 17, "insert": 32}[name]
            call(SYS_FALLOCATE, descriptor, mode, *numbers)

    def files(self):
        for parent, _, files in os.walk(self.root):
            for name in sorted(files):
                path = os.path.join(parent, name)
                if not os.path.islink(path):
                    yield path

    # What the kernel may do by itself.

    def write_back(self, offset=0, count=0):
        """Pages are written back; nothing is committed."""
        for path in self.files():
            descriptor = os.open(path, os.O_RDWR)
            call(SYS_SYNC_FILE_RANGE, descriptor, offset, count, WAIT_WRITE_WAIT)
            os.close(descriptor)

    def commit(self, other):
        """The log is committed: by an fsync of a file that has nothing to do with the case. Btrfs has a log for each file, so it
        is asked to commit its transaction, as it does every 30 seconds."""
        descriptor = os.open(other, os.O_CREAT | os.O_RDWR)
        try:
            transaction = fcntl.ioctl(descriptor, BTRFS_IOC_START_SYNC, bytes(8))
            fcntl.ioctl(descriptor, BTRFS_IOC_WAIT_SYNC, transaction)
        except OSError:
            os.fsync(descriptor)
        os.close(descriptor)
        os.unlink(other)


# What a kernel is known to leave and the model lacks; docs/design/files.md says why.
KNOWN = {("btrfs", "rename_fsync_target_directory")}

STIMULI = {
    "nothing": lambda program, other: None,
    "write back": lambda program, other: program.write_back(),
    "commit": lambda program, other: program.commit(other),
    "write back, commit": lambda program, other: (program.write_back(), program.commit(other)),
    "commit, write back": lambda program, other: (program.commit(other), program.write_back()),
    "write back the first page, commit": lambda program, other: (program.write_back(0, PAGE), program.commit(other)),
    "write back the second page, commit": lambda program, other: (program.write_back(PAGE, PAGE), program.commit(other)),
}


def check(kind, names, repository, scratch):
    """How many states, how many different ones, how many of the listed ones were met; and what was not listed."""
    folder = os.path.join(repository, "tests", "litmus", "files")
    image = Image(kind, scratch)
    seen = listed = met = 0
    wrong = []
    unsupported, known = set(), set()
    try:
        for name in sorted(os.listdir(folder)):
            if names and name.removesuffix(".json") not in names:
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                litmus = json.load(file)
            expected = next((trees for names, trees in litmus["trees"].items() if kind in names.split()), None)
            if expected is None:
                continue
            expected = [{path: without_offsets(text) for path, text in tree.items()} for tree in expected]
            found = []
            for number, (stimulus, happen) in enumerate(STIMULI.items()):
                case = f"{litmus['name']}-{number}"
                root = os.path.join(image.mount_point, case)
                other = os.path.join(image.mount_point, "other")
                program = Program(root, litmus)
                descriptor = os.open(root, os.O_RDONLY)
                LIBC.syncfs(descriptor)
                os.close(descriptor)
                try:
                    program.execute()
                except OSError as error:
                    # Btrfs collapses and inserts nothing.
                    if error.errno != errno.EOPNOTSUPP:
                        raise
                    shutil.rmtree(root)
                    unsupported.add(litmus["name"])
                    break
                happen(program, other)
                tree = image.crash(case)
                for handle in program.handles.values():
                    os.close(handle)
                shutil.rmtree(root)
                seen += 1
                if tree not in expected and (kind, litmus["name"]) in KNOWN:
                    known.add(litmus["name"])
                elif tree not in expected:
                    wrong.append(f"{kind}: {litmus['name']}, {stimulus}: {tree}")
                    print("not listed: " + wrong[-1], flush=True)
                elif tree not in found:
                    found.append(tree)
            if litmus["name"] in unsupported:
                continue
            unique = [tree for place, tree in enumerate(expected) if tree not in expected[:place]]
            listed += len(unique)
            met += len(found)
    finally:
        image.close()
    if known:
        print(f"{kind}: not listed, as known: {', '.join(sorted(known))}")
    if unsupported:
        print(f"{kind}: not supported: {', '.join(sorted(unsupported))}")
    return seen, listed, met, wrong


def main():
    repository, scratch, *kinds = sys.argv[1:]
    failed = False
    for kind in kinds:
        start = time.monotonic()
        kind, _, names = kind.partition(":")
        seen, listed, met, wrong = check(kind, names.split(",") if names else [], repository, scratch)
        seconds = time.monotonic() - start
        print(f"{kind}: {seen} crashes, {met} of {listed} listed trees met, {len(wrong)} trees not listed, {seconds:.0f} s")
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
