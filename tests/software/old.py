# Packages of PyPI, most of them in old versions that do not sync what they write:
#
#     python3 old.py run DIR PACKAGE VERSION
#     python3 old.py check DIR PACKAGE VERSION
#
# `run` keeps the records 1 to 4, one after the other, and prints each when it is kept; `check` fails unless it finds the records 1
# to n for some n, and prints them.
import json
import os
import sys

mode, directory, package, version = sys.argv[1:5]
sys.path.insert(0, os.path.abspath(f"pip-{package}-{version}"))
PATH = os.path.join(directory, "state.json")


def text(count):
    return json.dumps({"records": list(range(1, count + 1)), "padding": "-" * 5000})


def judge(records):
    assert records == list(range(1, len(records) + 1)), records
    for record in records:
        print(record)


def atomicwrites():
    if mode == "check":
        if os.path.exists(PATH):
            with open(PATH) as file:
                judge(json.load(file)["records"])
        return
    import atomicwrites as package

    for count in range(1, 5):
        with package.atomic_write(PATH, overwrite=True) as file:
            file.write(text(count))
        print("saved", count, flush=True)


def tinydb():
    if mode == "check" and not os.path.exists(PATH):
        return
    from tinydb import TinyDB

    with TinyDB(PATH) as db:
        if mode == "check":
            judge([it["number"] for it in db.all()])
            return
        for number in range(1, 5):
            db.insert({"number": number, "padding": "-" * 5000})
            print("saved", number, flush=True)


def ZODB():
    path = os.path.join(directory, "Data.fs")
    if mode == "check" and not os.path.exists(path):
        return
    import transaction
    from ZODB.DB import DB
    from ZODB.FileStorage import FileStorage

    database = DB(FileStorage(path))
    root = database.open().root()
    if mode == "check":
        assert all(text == "-" * 3000 for text in root.values()), root
        judge(sorted(root))
    else:
        for number in range(1, 4):
            root[number] = "-" * 3000
            transaction.commit()
            print("saved", number, flush=True)
    database.close()


globals()[package]()
