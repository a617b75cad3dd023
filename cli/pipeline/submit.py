"""`klamm pipeline submit`: runs a program of yours on a cluster, with Klamm's code."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from klamm.cli.pipeline.options import MASTER, MEMORY, settings_options


@click.command(
    "submit", short_help="Run a Python program on a cluster, with Klamm's code.", context_settings={"ignore_unknown_options": True}
)
@MASTER
@MEMORY
@settings_options
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(master: str, memory: str, settings: dict[str, str], program: tuple[str, ...]) -> None:
    """Run PROGRAM, a Python file with its arguments, by spark-submit, with the settings of `klamm pipeline run`.

    Workers get Klamm's code as a zip, and need what it is built on, the packages of the extra `pipeline`, for example from Klamm's image.

    \b
    klamm pipeline submit --master spark://host:7077 -- job.py /lake
    """
    from klamm.pipeline.spark.cluster import code_zip, environment, submit_command
    from klamm.pipeline.spark.java import java_for_spark
    from klamm.pipeline.spark.session import session_settings
    from klamm.pipeline.spark.settings import PY_FILES
    from klamm.pipeline.spark.user_settings import merged

    java = java_for_spark()
    chosen = merged(session_settings(master, java, memory, settings) | {PY_FILES: str(code_zip())}, settings)
    with tempfile.TemporaryDirectory(prefix="klamm-submit-") as folder:
        sys.exit(subprocess.call(submit_command(chosen, Path(folder), "--master", master, *program), env=environment(java)))
