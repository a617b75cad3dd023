"""`klamm pipeline jars`: the jars by which Spark reads `s3a://`."""

from __future__ import annotations

import click

from klamm.cli.shell.output import say


@click.command("jars", short_help="Fetch the jars with which Spark reads s3a://.")
def command() -> None:
    """Print the jars with which Spark itself reads s3a://, with commas between them; they are fetched with Maven once (13 MB).

    Commands of `klamm pipeline` work on s3:// without them. With them your own queries can read the tables there; their endpoint, region
    and credentials come from the variables that the commands read (AWS_ENDPOINT_URL, AWS_REGION, …), or from the AWS SDK's chain.

    \b
    klamm pipeline serve --jars "$(klamm pipeline jars)"
    klamm pipeline submit --jars "$(klamm pipeline jars)" -- report.py s3a://bucket/lake
    """
    from klamm.pipeline.spark.s3a import jars

    say(",".join(map(str, jars())))
